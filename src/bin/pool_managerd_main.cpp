#include "base/descriptor_limit.h"
#include "pool_managerd/command_line.h"

int main(int argc, char** argv) {
  llorch::base::raise_descriptor_limit();
  return llorch::pool_managerd::run_pool_managerd(argc, argv);
}
