// Numbers and sentences for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis.hpp"

namespace roci::plot {

std::string grouped(uint64_t n);                                                ///< "12,345"
std::string count_of(uint64_t n, const char* one, const char* many = nullptr);  ///< "1 packet", "3 packets"
std::string duration(int64_t nanos);                                            ///< "4.2 ms"
std::string byte_text(uint64_t bytes);                                          ///< "65.5 kB"
std::string rate_text(double bits_per_second);
uint32_t wire_psn(int64_t psn);  ///< its 24 bits

/// What happened on a connection, one sentence each.
std::vector<std::string> sentences(const Analysed& a);
/// The whole text that `roci plot` prints: capture, notices, connections; lines of at most `columns` characters where words
/// permit.
std::string summary_text(const Analysis& a, size_t columns);

}  // namespace roci::plot
