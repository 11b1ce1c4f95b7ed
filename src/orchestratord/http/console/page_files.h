#pragma once
// The files of the page, as the build embeds them.
#include <span>
#include <string_view>

namespace llorch::orchestratord::http::console {

struct PageFile {
  std::string_view path;  // below page/: "views/jobs.js"
  std::string_view bytes;
};
// In order of their paths. The bytes live as long as the program.
std::span<const PageFile> page_files();

}  // namespace llorch::orchestratord::http::console
