#include "base/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstring>

#include "base/file.h"
#include "base/process.h"
#include "base/sha256.h"
#include "base/version.h"

namespace llorch::base {
namespace {

// Called for each loaded object; the executable comes first, and one is enough.
int find_note(dl_phdr_info* object, std::size_t, void* out) {
  auto& hex = *static_cast<std::string*>(out);
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const std::uint8_t*>(object->dlpi_addr + segment.p_vaddr);
    const auto* end = at + segment.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const auto* name = at + sizeof note;
      const auto* value = name + (note.n_namesz + 3) / 4 * 4;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        hex = to_hex({value, note.n_descsz}).substr(0, 12);
        return 1;
      }
      at = value + (note.n_descsz + 3) / 4 * 4;
    }
  }
  return 1;
}

}  // namespace

std::string build_id() {
  std::string hex;
  dl_iterate_phdr(find_note, &hex);
  return std::string(kVersion) + "+" + (hex.empty() ? "unknown" : hex);
}

std::string release_id() {
  const auto text = read_file(executable_directory() + "/RELEASE", 128);
  return text ? text->substr(0, text->find('\n')) : std::string();
}

std::string version_text() {
  const std::string release = release_id();
  return release.empty() ? build_id() : build_id() + " (release " + release + ")";
}

}  // namespace llorch::base
