#include "base/origin.h"

#include <algorithm>
#include <array>

namespace llorch::base {
namespace {

constexpr std::size_t kOriginBytesMax = 256;  // of a DNS name, with a scheme and a port
constexpr std::string_view kFile = "file://";

// Schemes of which programs are pages: Electron's customary one, Tauri, Capacitor, Ionic, windows of VS Code, extensions of browsers.
constexpr std::array<std::string_view, 9> kProgramSchemes{"app",
                                                          "tauri",
                                                          "capacitor",
                                                          "ionic",
                                                          "vscode-file",
                                                          "vscode-webview",
                                                          "chrome-extension",
                                                          "moz-extension",
                                                          "safari-web-extension"};

}  // namespace

bool is_origin(std::string_view text) {
  if (text == kFile) return true;
  if (text.size() > kOriginBytesMax) return false;
  const std::size_t colon = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789+-.");
  if (colon == std::string_view::npos || colon == 0 || text.substr(colon, 3) != "://") return false;
  const std::string_view name = text.substr(colon + 3);
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return c > ' ' && c < '\x7f' && std::string_view("/@*?#,\"'`\\<>").find(c) == std::string_view::npos;
  });
}

bool is_origin_of_a_program(std::string_view origin) {
  if (origin == kFile) return true;
  const std::string_view scheme = origin.substr(0, origin.find(':'));
  return is_origin(origin) && std::ranges::find(kProgramSchemes, scheme) != kProgramSchemes.end();
}

}  // namespace llorch::base
