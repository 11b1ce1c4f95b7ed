#include <cstdio>

#include "adapter/app.h"
#include "base/descriptor_limit.h"

int main(int argc, char** argv) {
  llorch::base::raise_descriptor_limit();
  const llorch::adapter::ParsedOptions parsed = llorch::adapter::parse_options(argc, argv);
  if (parsed.exit_code) {
    std::fputs(parsed.message.c_str(), *parsed.exit_code == 0 ? stdout : stderr);
    return *parsed.exit_code;
  }
  return llorch::adapter::run(parsed.options);
}
