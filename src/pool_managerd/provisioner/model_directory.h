#pragma once
// What a directory of the model cache holds, published or not yet.
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/result.h"

namespace llorch::pool_managerd::provisioner {

// The file or directory to name in a reference: the first part of a split model stands for all.
std::optional<std::filesystem::path> model_in(const std::filesystem::path& directory);

std::int64_t bytes_in(const std::filesystem::path& directory);

bool is_signature(const std::filesystem::path& file);
// The name of the signature beside a model; empty: there is none.
std::string signature_in(const std::filesystem::path& directory);

// Of the regular files below `directory`, hidden directories in it left out: device and inode.
std::set<std::pair<dev_t, ino_t>> inodes_in(const std::filesystem::path& directory);

// Has the disk hold all that is below `directory`. Errors: IO_ERROR.
base::Result<> sync_all(const std::filesystem::path& directory);

// Of the files in `directory`, those whose bytes the digest of `model` is of stay. Errors: IO_ERROR, those of model_file_list().
base::Result<> remove_others(const std::filesystem::path& directory, const std::filesystem::path& model);

}  // namespace llorch::pool_managerd::provisioner
