// Phases of I/O in C++, without an agent.
#include <baro.hpp>

#include <chrono>
#include <cstdio>
#include <utility>

int main()
{
    using namespace std::chrono_literals;
    baro::publisher app{"phases"};
    auto scratch = app.io_volume("/scratch");
    if (!scratch)
        return 1;
    {
        auto phase = scratch.begin(4096);
        if (phase.grant() == baro::io_grant::granted)
            return 2;
        auto moved = std::move(phase);
        moved.step(10);
        moved.end(4096);
        moved.end(4096);
    }
    auto other = scratch.begin(-1, 10, 1ms);
    return other.step(1) == baro::io_grant::granted ? 3 : 0;
}
