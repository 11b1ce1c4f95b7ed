#pragma once
// Requests of a batch as jobs of priority batch, and their answers as lines of blobs. A batch goes on after a crash with the
// requests that have no answer yet; every request has one answer.
#include <boost/json/object.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "orchestratord/http/deferred/batch_form.h"

namespace llorch::orchestratord::http::deferred {

// REQUIRES: `context` and `submitter` outlive it, the context has blobs; every member but the constructor and add() is called on
// the thread of kept files.
class BatchRunner {
 public:
  static constexpr std::size_t kInFlightMax = 32;  // requests of one batch
  static constexpr int kTriesMax = 5;              // of a request whose job fails for what may pass

  BatchRunner(const Context& context, tasks::Submitter& submitter) : context_(context), submitter_(submitter) {}

  // Batches of this form are run as well. REQUIRES: before everything else; `form` outlives the runner's use.
  void add(BatchForm& form) { forms_.push_back(&form); }

  // Whether this account may begin one more batch now; asked before anything is made for it. Errors: QUOTA_EXCEEDED.
  base::Result<> check_count(const std::string& account) const;
  // A new batch of the caller in `facts`, whose input and blobs of answers are there. It begins when no other one of its tenant
  // runs; one whose status is final never does. Errors: as of BlobStore::create().
  base::Result<> create(const BatchForm& form, const std::string& id, const boost::json::object& facts);
  // No request begins any more, and those that run are ended. Writes something once, whatever room its owner has. Errors: CONFLICT
  // (it has ended), STORE_UNAVAILABLE.
  base::Result<> cancel(const store::blobs::Blob& batch);
  // Whether one that has not ended has this blob for its input.
  bool reads(const std::string& blob_id) const;
  // As they are now.
  boost::json::object facts_of(const store::blobs::Blob& batch) const;

  // Goes on with what an earlier process did not finish, and ends batches whose time is over, from now on.
  void resume();

 private:
  struct Request {
    std::int64_t number = 0;  // of its line
    std::string custom_id;
    std::string body;
    int tries = 0;
    std::optional<base::JobId> job_id{};  // while its job runs
  };
  using RequestPtr = std::shared_ptr<Request>;
  struct Input {
    LineSplitter lines{};
    std::uint64_t offset = 0;
    std::int64_t lines_read = 0;
  };
  // One that is not done.
  struct Active {
    std::string id;
    BatchForm* form = nullptr;
    boost::json::object facts;
    net::http::Principal caller;
    BatchBlobs blobs;
    std::int64_t created_unix_ms = 0;
    std::set<std::string, std::less<>> done{};  // custom ids
    Input input{};
    bool begun = false;  // `done` is what an earlier process did
    bool input_ended = false;
    BatchLosses losses{};
    bool waits_for_room = false;  // look() goes on with it
    std::size_t longest_answer_bytes = 0;
    std::set<RequestPtr> in_flight{};
  };
  using ActivePtr = std::shared_ptr<Active>;
  // What is asked for of every batch that has not ended, so that nobody reads its facts for that.
  struct Unfinished {
    std::string account;
    std::string input;  // a blob
    // By BlobStore::elapsed_ms(), of one that this process made; else its facts and the settled clock say when.
    std::optional<std::int64_t> due_elapsed_ms{};
  };

  // By their ids.
  std::map<std::string, Unfinished>& unfinished() const;
  // The same in every process.
  static std::string name_of(const Active& batch, const Request& request);
  static base::CorrelationId correlation_of(const Active& batch, const Request& request);
  ActivePtr find_active(const store::blobs::Blob& batch) const;
  ActivePtr next_of(const std::string& tenant_id) const;
  base::Result<> set_facts(const Active& batch) const;
  void schedule(const std::string& tenant_id);
  void begin(const ActivePtr& batch);
  // No further request begins: its owner keeps as many bytes as it may, once those that run have answers as long as the longest so far.
  // Notes that, and says it once in the log.
  bool waits_for_room(Active& batch) const;
  base::Result<> read_results(Active& batch, const std::string& blob_id) const;
  // Whether this part of the batch is gone or damaged, so that no further try finds it whole. Notes that, and says it once in the log.
  static bool note_loss(Active& batch, bool BatchLosses::*part, const base::Error& error);
  void feed(const ActivePtr& batch);
  base::Result<std::optional<Request>> next_request(const Active& batch, Input& input) const;
  void run(const ActivePtr& batch, const RequestPtr& request);
  void on_done(const ActivePtr& batch, const RequestPtr& request, base::Result<net::Response> answer);
  void keep(const ActivePtr& batch, const RequestPtr& request, const net::Response& answer);
  // It was cancelled, its time is over, or results of it are lost: what has no answer yet gets none.
  bool ends(const Active& batch) const;
  static base::Result<tasks::DeferredJobPtr> job_of(const Active& batch, BatchRequest request);
  bool is_too_late(const Active& batch) const;
  void end_jobs(const Active& batch);
  base::Result<> list_unanswered(Active& batch) const;
  void finish(const ActivePtr& batch);
  void look();

  const Context& context_;
  tasks::Submitter& submitter_;
  std::vector<BatchForm*> forms_;
  std::map<std::string, ActivePtr> active_;                                // by tenant: one at a time
  mutable std::optional<std::map<std::string, Unfinished>> unfinished_{};  // read when it is first asked for
};

}  // namespace llorch::orchestratord::http::deferred
