// Control events in C++: prints what comes, in the way that it is told.
#include <baro.hpp>

#include <chrono>
#include <iostream>
#include <stdexcept>
#include <string>

using namespace std::chrono_literals;

static void show(const char *how, const baro::control_event &event)
{
    std::cout << how << ' ' << event.kind() << ' ' << event.subject() << ' ' << event.value().value_or(-1) << ' '
              << event.property("policy").value_or("-") << std::endl;
}

int main()
{
    baro::publisher app("teller");
    if (!app.control_event("a.b", "c", 1, 0.5, {{"name", "text"}}) || app.control_event("a b"))
        return 1;
    baro::node node;
    baro_control_filter_t filter = BARO_CONTROL_FILTER_INIT;
    filter.kind = "io.*";
    auto events = node.control_events(filter);
    if (events.check() || events.wait(1ms))
        return 2;
    std::cout << "ready" << std::endl;
    std::string line;
    std::getline(std::cin, line);
    show("wait", *events.wait(60s));
    events.on([](const baro::control_event &event) { show("callback", event); });
    std::getline(std::cin, line);
    std::cout << events.dispatch(60s) << std::endl;
    events.on([](const baro::control_event &) { throw std::runtime_error("thrown"); });
    std::getline(std::cin, line);
    try {
        events.dispatch(60s);
    } catch (const std::runtime_error &error) {
        std::cout << error.what() << ' ' << events.missed() << std::endl;
    }
    std::getline(std::cin, line);
    return 0;
}
