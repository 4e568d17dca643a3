#!/bin/sh
# Installs the build in BUILD below DESTDIR and PREFIX: the program, libbaro for C, C++ and Fortran,
# and the files with which pkg-config and compilers find it.
#
#     scripts/install.sh BUILD DESTDIR PREFIX
set -eu
build=$1
prefix=$3
root=$2$3
here=$(dirname "$0")/..
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/Cargo.toml" | head -n 1)
major=$(sed -n 's/^#define BARO_VERSION_MAJOR //p' "$here/crates/libbaro/include/baro.h")

install -d "$root/bin" "$root/lib/pkgconfig" "$root/include" "$root/share/barograph/mpi"
install -m 755 "$build/baro" "$root/bin/baro"
install -m 755 "$build/libbaro.so" "$root/lib/libbaro.so.$version"
ln -sf "libbaro.so.$version" "$root/lib/libbaro.so.$major"
ln -sf "libbaro.so.$major" "$root/lib/libbaro.so"
# Symbols stay, so backtraces name functions; source lines are only shown with `make run`.
"${STRIP:-strip}" --strip-debug "$root/bin/baro"
"${STRIP:-strip}" --strip-unneeded "$root/lib/libbaro.so.$version"
# The library that `baro io` preloads to publish a program's I/O.
"${CC:-cc}" -std=gnu11 -O2 -shared -fPIC -fvisibility=hidden "$here/crates/libbaro/shim/"*.c -ldl -lpthread \
    -Wl,-soname,libbaro_io.so -Wl,-z,nodelete -o "$root/lib/libbaro_io.so"
install -m 644 "$build/libbaro.a" "$root/lib/libbaro.a"
# In a test build, debug information is in members of its own, which strip does not recognize as
# objects.
"${AR:-ar}" t "$root/lib/libbaro.a" 2>/dev/null | grep '\.dwo$' | xargs -r "${AR:-ar}" d "$root/lib/libbaro.a"
"${STRIP:-strip}" --strip-debug "$root/lib/libbaro.a"
install -m 644 "$here/crates/libbaro/include/baro.h" "$here/crates/libbaro/include/baro.hpp" "$root/include"
# A Fortran module fits one compiler version only: programs compile it from this source.
install -m 644 "$here/crates/libbaro/fortran/baro.f90" "$here/crates/libbaro/fortran/baro_bindings.inc" "$root/share/barograph"
# The binary interface of MPI differs between its implementations: programs compile collective calls with their mpicc.
install -m 644 "$here/crates/libbaro/mpi/baro_mpi.h" "$root/include"
install -m 644 "$here/crates/libbaro/mpi/"*.c "$here/crates/libbaro/mpi/file.h" "$here/crates/libbaro/mpi/layout.h" \
    "$root/share/barograph/mpi"
mpi_sources=$(cd "$here/crates/libbaro/mpi" && printf '${prefix}/share/barograph/mpi/%s ' *.c)
cat > "$root/lib/pkgconfig/baro.pc" <<PC
prefix=$prefix
mpi_sources=${mpi_sources% }
Name: baro
Description: publish a program's own values to barograph, and read what it knows of the node
Version: $version
Libs: -L\${prefix}/lib -lbaro
Libs.private: -lpthread -ldl -lm
Cflags: -I\${prefix}/include
PC
