# Job classes of the Ruby peer, and the settings of its worker process. Python declares jobs of the same names.
#
# Loaded by the sidekiq command line (-r), by push.rb and by record.rb. What a job did is written to a Redis list, so
# that a test sees which language ran it. The periods of the worker are shortened, nothing else of Sidekiq is changed.

require "json"
require "sidekiq"
require "sidekiq/scheduled"

Redis.silence_deprecations = true

FAILURE_MESSAGE = "interop failure: é <b>&</b>"
# Of their own, so that a recorded backtrace is the same wherever it was recorded; innermost first, as Ruby has them.
FAILURE_LINES = (1..8).map { |n| "app/jobs/step_#{n}.rb:#{n}:in `é#{n}'" }.freeze

# Writes one line a run to the list that tests read.
module Recording
  RAN_KEY = "interop:ran"

  def record(args)
    row = {"by" => "ruby", "class" => self.class.name, "jid" => jid, "args" => args}
    Sidekiq.redis { |conn| conn.rpush(RAN_KEY, JSON.generate(row)) }
  end
end

class Recorder
  include Sidekiq::Worker
  include Recording

  def perform(*args)
    record(args)
  end
end

class Failing
  include Sidekiq::Worker

  def perform(*)
    raise FAILURE_MESSAGE
  end
end

# Fails in the language it is told, works in the other one.
class Picky
  include Sidekiq::Worker
  include Recording

  def perform(fails_in)
    raise FAILURE_MESSAGE if fails_in == "ruby"
    record([fails_in])
  end
end

class DiesAtOnce
  include Sidekiq::Worker
  sidekiq_options retry: 0

  def perform(*)
    raise FAILURE_MESSAGE
  end
end

class NeverRetried
  include Sidekiq::Worker
  sidekiq_options retry: false

  def perform(*)
    raise FAILURE_MESSAGE
  end
end

class Tagged
  include Sidekiq::Worker
  include Recording
  sidekiq_options queue: "low", retry: 5, tags: ["alpha", "ünïcode"]

  def perform(*args)
    record(args)
  end
end

class WithBacktrace
  include Sidekiq::Worker
  sidekiq_options backtrace: true

  def perform(*)
    raise RuntimeError, FAILURE_MESSAGE, FAILURE_LINES
  end
end

class WithThreeLines
  include Sidekiq::Worker
  sidekiq_options backtrace: 3

  def perform(*)
    raise RuntimeError, FAILURE_MESSAGE, FAILURE_LINES
  end
end

# Runs until the test pushes to the list that it names.
class Waiting
  include Sidekiq::Worker
  include Recording
  LONGEST_S = 60

  def perform(release_key)
    Redis.new(url: ENV.fetch("REDIS_URL")).blpop(release_key, timeout: LONGEST_S)
    record([release_key])
  end
end

# Ends this process when the test that started it is gone: its end of the pipe closes.
def exit_with_parent
  Thread.new do
    $stdin.read
    Process.exit!(1)
  end
end

Sidekiq.configure_server do
  exit_with_parent if ENV["INTEROP_EXIT_WITH_PARENT"]
  Sidekiq.options[:poll_interval_average] = Float(ENV.fetch("INTEROP_POLL_S", "0.2"))
  require "sidekiq/launcher"
  Sidekiq::Launcher.send(:remove_const, :BEAT_PAUSE)
  Sidekiq::Launcher.const_set(:BEAT_PAUSE, Float(ENV.fetch("INTEROP_BEAT_S", "0.5")))
  # The first wait of the poller is up to five seconds whatever the interval.
  Sidekiq::Scheduled::Poller.class_eval do
    def initial_wait
      @sleeper.pop(0.1)
    rescue Timeout::Error
    end
    private :initial_wait
  end
end
