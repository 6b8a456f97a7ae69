# Sidekiq's own Web UI, as a Rack application.
require_relative "worker"
require "sidekiq/web"
require "rack/session/cookie"

exit_with_parent if ENV["INTEROP_EXIT_WITH_PARENT"]
use Rack::Session::Cookie, secret: ENV.fetch("INTEROP_SESSION_SECRET"), same_site: true, max_age: 86_400
run Sidekiq::Web
