// The smallest program that publishes: c++ -std=c++17 publish.cpp -lbaro
#include <baro.hpp>

int main()
{
    baro::publisher app{"example"};
    const auto step = app.publication("example");
    const auto residual = step.value<double>("residual", {"1", baro::kind::gauge, "distance from the solution"});
    for (std::uint64_t n = 0; n < 1000; ++n) {
        residual.put(1.0 / double(n + 1));
        step.frame(n);
    }
}
