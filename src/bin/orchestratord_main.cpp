#include <malloc.h>

#include "base/descriptor_limit.h"
#include "orchestratord/daemon/command_line.h"

int main(int argc, char** argv) {
  llorch::base::raise_descriptor_limit();
  // What is larger (bodies, prompts) has a mapping of its own, so that its memory goes back to the system when it is freed.
  // glibc begins with this limit, but raises it to the largest block that was freed, up to 32 MiB, unless it is set.
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  // A job's small blocks are freed by other threads than made them. Without these lists no large block has to merge them all
  // before it is given out.
  mallopt(M_MXFAST, 0);
  return llorch::orchestratord::daemon::run_orchestratord(argc, argv);
}
