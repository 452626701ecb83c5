// The table of all configuration keys.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config.hpp"

namespace roci::rocid {

enum class Kind : uint8_t { text, choice, count, integer, octal, fraction, texts };

using Value = std::variant<std::string, uint64_t, int64_t, double, std::vector<std::string>>;

struct Option {
    std::string_view section;  ///< "device" is an array of tables
    std::string_view key;
    Kind kind;
    std::string_view preset;   ///< the default, as written in a file
    double min, max;           ///< allowed range of numbers
    std::string_view choices;  ///< allowed values of a choice: "a|b|c"
    std::string_view why;
    void (*store)(Config&, DeviceSection*, Value&&);
    Value (*load)(const Config&, const DeviceSection*);
};

std::span<const Option> options();
/// Returns the allowed values as text, such as "1..256", "auto|always|never" or "0.0..1.0".
std::string allowed(const Option& o);

}  // namespace roci::rocid
