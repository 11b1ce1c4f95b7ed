#pragma once
// /v1/batches: the lines of a file as jobs of priority batch, their answers in another file. A batch goes on after a crash with the
// lines that have no answer yet; every line has one answer.
#include <boost/json/object.hpp>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "orchestratord/http/openai/deferred/batch_input.h"
#include "orchestratord/http/openai/deferred/deferred_call.h"
#include "wire/openai.h"

namespace llorch::orchestratord::http::openai {

// REQUIRES: `context` and `submitter` outlive it, the context has blobs; every member is called on the thread of kept files.
class Batches {
 public:
  static constexpr std::string_view kKind = "batch";
  static constexpr std::size_t kInFlightMax = 32;  // lines of one batch
  static constexpr int kTriesMax = 5;              // of a line whose job fails for what may pass

  Batches(const Context& context, tasks::Submitter& submitter) : context_(context), submitter_(submitter) {}

  void create(const net::Request& request, const net::ExchangePtr& exchange);
  void list(const net::Request& request, const net::ExchangePtr& exchange);
  void show(const net::Request& request, const net::ExchangePtr& exchange);
  void cancel(const net::Request& request, const net::ExchangePtr& exchange);

  // Whether one that is not done has this file for its input.
  static bool reads(const store::blobs::BlobStore& blobs, const std::string& file_id);

  // Goes on with what an earlier process did not finish, and ends batches whose time is over, from now on.
  void resume();

 private:
  struct Line {
    std::int64_t number = 0;
    std::string custom_id;
    std::string body;
    int tries = 0;
    std::optional<base::JobId> job_id{};  // while its job runs
  };
  using LinePtr = std::shared_ptr<Line>;
  // One that is not done.
  struct Active {
    std::string id;
    boost::json::object facts;
    net::http::Principal caller;
    std::int64_t created_unix_ms = 0;
    std::set<std::string, std::less<>> done{};  // custom ids
    LineSplitter input{};
    std::uint64_t input_offset = 0;
    std::int64_t lines_read = 0;
    bool input_ended = false;
    std::set<LinePtr> in_flight{};
  };
  using ActivePtr = std::shared_ptr<Active>;

  std::string view(const store::blobs::Blob& blob) const;
  const store::blobs::Blob* find(const net::Request& request, const net::ExchangePtr& exchange) const;
  base::Result<> set_facts(const Active& batch) const;
  base::Result<> check_input(const std::string& file_id, BatchCheck& check) const;
  base::Result<boost::json::object> accept(const wire::CreateBatchRequest& wanted, const std::string& id,
                                           const net::http::Principal& caller) const;
  void schedule(const std::string& tenant_id);
  void begin(const ActivePtr& batch);
  base::Result<> read_results(Active& batch, const std::string& file_id, std::string_view count);
  void feed(const ActivePtr& batch);
  base::Result<std::optional<Line>> next_line(Active& batch) const;
  void run(const ActivePtr& batch, const LinePtr& line);
  void on_done(const ActivePtr& batch, const LinePtr& line, base::Result<net::Response> answer);
  void keep(const ActivePtr& batch, const LinePtr& line, const net::Response& answer);
  // It was cancelled, or its time is over: what has no answer yet gets none.
  bool ends(const Active& batch) const;
  void end_jobs(const Active& batch);
  void finish(const ActivePtr& batch);
  void finish_later(const ActivePtr& batch);
  base::Result<> reveal(boost::json::object& facts, std::string_view member) const;
  void remove_orphans() const;
  void look();

  const Context& context_;
  tasks::Submitter& submitter_;
  std::map<std::string, ActivePtr> active_;  // by tenant: one at a time
};

}  // namespace llorch::orchestratord::http::openai
