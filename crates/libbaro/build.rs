//! How the shared library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Programs remember it by the version of its ABI.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libbaro.so.1");
    // Ends of threads and forks call into it: it stays when it is closed.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
