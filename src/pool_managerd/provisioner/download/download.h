#pragma once
// Fetches one file: several ranges at a time, resumed where an earlier attempt ended, hashed while it comes.
#include <functional>

#include "pool_managerd/provisioner/download/part_file.h"
#include "pool_managerd/provisioner/web/web.h"

namespace llorch::pool_managerd::provisioner::download {

struct DownloadOptions {
  web::WebRequest request;                 // without a range
  std::filesystem::path stem;              // of the files of PartFile
  std::string sha256;                      // hex, that the file must have; empty: any
  std::optional<std::int64_t> size_bytes;  // as the source says; absent: as the server says
  std::int64_t connections = 4;
  std::string_view room_advice = kRoomForModels;  // for whom the disk is full
};
// Bytes that are here, and of the whole file.
using OnBytes = std::function<void(std::int64_t done, std::int64_t total)>;

// The complete file, still under its partial name. Whatever ends it early leaves what has come for the next attempt, and none of the
// room that was taken for the rest. Errors: those of Web and PartFile; UNTRUSTED_ARTIFACT (another checksum or size; nothing is left
// then); CONFLICT (the file changed while it was fetched); CANCELLED.
base::Result<PartFile> download(web::Web& web, const DownloadOptions& options, const StopFlag& stop,
                                const OnBytes& on_bytes);

}  // namespace llorch::pool_managerd::provisioner::download
