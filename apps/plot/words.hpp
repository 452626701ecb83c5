// Converts numbers to text, and the results of the analysis to sentences.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis.hpp"

namespace roci::plot {

std::string grouped(uint64_t n);                                                ///< such as "12,345"
std::string count_of(uint64_t n, const char* one, const char* many = nullptr);  ///< such as "1 packet" or "3 packets"
std::string duration(int64_t nanos);                                            ///< such as "4.2 ms"
std::string byte_text(uint64_t bytes);                                          ///< such as "65.5 kB"
std::string rate_text(double bits_per_second);
uint32_t wire_psn(int64_t psn);  ///< the 24 bits of an extended PSN

/// Returns a summary of a connection. The first sentence contains the number, the service and the ends of the connection.
std::vector<std::string> sentences(const Analysed& a);
/// Returns the text that `roci plot` prints: the capture, the notices and the connections. Lines have at most `columns`
/// characters, unless a word is longer. `columns` is limited to the range from 20 to 120.
std::string summary_text(const Analysis& a, size_t columns);

}  // namespace roci::plot
