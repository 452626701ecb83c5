#include "icrc_kernel.hpp"

#include <cstdlib>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "pmd_glue/eal.hpp"

namespace roci::rocid {

std::string_view icrc_kernel() {
    const wire::crc::Kernel* kernel = wire::crc::chosen().kernel;
    return kernel != nullptr ? kernel->name : "none";
}

std::vector<std::string> icrc_warnings(const wire::crc::Choice& choice, std::string_view wanted) {
    std::vector<std::string> lines;
    if (choice.failed != nullptr)
        lines.push_back(
            fmt::format("ICRC: {} failed its self-test and is not used: this processor, or what emulates it, is faulty",
                        choice.failed->name));
    if (choice.kernel == nullptr) return lines;
    if (choice.unknown_name)
        lines.push_back(fmt::format("ROCI_CRC={}: this processor cannot run that; ICRC by {}", wanted, choice.kernel->name));
    if (choice.slow != nullptr)
        lines.push_back(fmt::format("ICRC by {}: {} is slower on this processor{}", choice.kernel->name, choice.slow->name,
                                    choice.kernel == &wire::crc::kTable ? ", which is probably emulated" : ""));
    else if (choice.kernel == &wire::crc::kTable && wanted != choice.kernel->name)
        lines.emplace_back("ICRC by table: this processor has no carry-less multiplication; ICRCs take ten times as long");
    return lines;
}

void check_icrc_kernel() {
    if (wire::crc::chosen().kernel == nullptr) throw pmd::StartError("no way to compute ICRCs passes its self-test");
}

void log_icrc_warnings() {
    const char* wanted = std::getenv("ROCI_CRC");
    for (const std::string& line : icrc_warnings(wire::crc::chosen(), wanted != nullptr ? wanted : "")) spdlog::warn("{}", line);
}

}  // namespace roci::rocid
