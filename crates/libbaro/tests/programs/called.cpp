// Prints each call that it gets; ends when a call asks for it.
#include <baro.hpp>

#include <cstdio>
#include <stdexcept>
#include <thread>

int main()
{
    baro::publisher app{"called"};
    const auto of = app.publication("called");
    const auto f = of.knob("f", 0.5F, 0.0F, 1.0F, {"1"});
    const auto i = of.knob("i", 5, 0, 9);
    const auto t = of.knob("t", false, "true or not");
    const auto refused = of.knob("No", 0.5, 0.0, 1.0);
    if (!f.is_declared() || !i.is_declared() || !t.is_declared() || refused.is_declared() || refused != 0.5)
        return 1;
    bool is_over = false;
    int called = 0;
    const std::string prefix = "said ";
    app.on("say", [prefix](const baro::call &call) {
        if (const auto number = call.number())
            std::printf("%s%g\n", prefix.c_str(), *number);
        else
            std::printf("%s%.*s\n", prefix.c_str(), int(call.text().size()), call.text().data());
    });
    app.on("fail", [](const baro::call &call) {
        if (call.text() == "throw")
            throw std::runtime_error("as told");
        return false;
    });
    app.on(of, "fail", [](const baro::call &) { std::printf("also\n"); });
    app.on("end", [&is_over](const baro::call &) { is_over = true; }, "ends it");
    while (!is_over) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        called += app.poll();
    }
    std::printf("%d %g %d %d\n", called, double(f), i.get(), t.get());
}
