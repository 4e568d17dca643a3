//! Linker options of the shared library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The version of the ABI, by which programs find the library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libbaro.so.1");
    // The library stays loaded when it is closed, because ends of threads and forks call into it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
