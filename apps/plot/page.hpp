// The page: one HTML file with its data, its style and its script.
#pragma once

#include <string>

#include "analysis.hpp"

namespace roci::plot {

/// What the page draws, as JSON.
std::string page_data(const Analysis& a);
/// The page. It loads nothing else.
std::string page(const Analysis& a);

/// Text for HTML: nothing in it is markup.
std::string escaped(const std::string& text);

/// Parts of the page that are files of their own in the sources.
extern const char* const kStyle;
extern const char* const kBody;
extern const char* const kScript;

}  // namespace roci::plot
