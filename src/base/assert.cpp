#include "base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace llorch::base {

void assert_failed(const char* expression, const char* file, int line, const std::string& values) {
  std::fprintf(stderr,
               "{\"level\":\"error\",\"event\":\"assert.failed\",\"where\":\"%s:%d\",\"expression\":\"%s\"}\n%s\n",
               file, line, expression, values.c_str());
  std::abort();
}

}  // namespace llorch::base
