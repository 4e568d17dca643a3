// A Kokkos program that knows nothing of barograph.
#include <Kokkos_Core.hpp>

#include <cstdio>

int main(int argc, char **argv)
{
    Kokkos::initialize(argc, argv);
    {
        const int n = 1 << 16;
        Kokkos::View<double *> a("a", n), b("b", n), c("c", n);
        Kokkos::Profiling::pushRegion("steps");
        double sum = 0.0;
        for (int step = 0; step < 20; step++) {
            Kokkos::parallel_for("triad", n, KOKKOS_LAMBDA(int i) { a(i) = b(i) + 3.0 * c(i) + step; });
            Kokkos::parallel_reduce("sum", n, KOKKOS_LAMBDA(int i, double &s) { s += a(i); }, sum);
        }
        Kokkos::Profiling::popRegion();
        std::printf("%g\n", sum);
    }
    Kokkos::finalize();
}
