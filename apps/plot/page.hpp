// The page: one HTML file that contains data, style and script.
#pragma once

#include <string>

#include "analysis.hpp"

namespace roci::plot {

/// Returns the data of the page as JSON.
std::string page_data(const Analysis& a);
/// Returns the HTML text of the page. The page loads no other files.
std::string page(const Analysis& a);

/// Escapes a text for HTML.
std::string escaped(const std::string& text);

/// Parts of the page that are separate files in the sources.
extern const char* const kStyle;
extern const char* const kBody;
extern const char* const kScript;

}  // namespace roci::plot
