#include "wire/model_name.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace llorch::wire {
namespace {

constexpr std::size_t kNameBytesMax = 128;
constexpr std::array<std::string_view, 8> kSchemes{
    "file:", "engine:", "hf:", "http:", "https:", "s3:", "oci:", "pypi:"};

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-' || c == ':';
}

bool is_reference(std::string_view text) {
  return std::any_of(kSchemes.begin(), kSchemes.end(),
                     [&](std::string_view scheme) { return text.starts_with(scheme); });
}

}  // namespace

bool is_model_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameBytesMax && text.front() != '.' && !is_reference(text) &&
         std::all_of(text.begin(), text.end(), is_name_character);
}

std::string model_name_from(std::string_view text) {
  std::string out(text.substr(0, kNameBytesMax));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return !is_name_character(c); }, '-');
  return is_model_name(out) ? out : "model";
}

}  // namespace llorch::wire
