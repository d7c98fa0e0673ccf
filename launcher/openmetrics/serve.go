package openmetrics

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/common/expfmt"
)

// Path is the URL path of the metrics.
const Path = "/metrics"

// Handler replies to HTTP requests with the job that newest returns. newest
// must not block. A client that does not accept OpenMetrics receives the older
// Prometheus text format.
func Handler(newest func() Job) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, r *http.Request) {
		format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...)
		var text bytes.Buffer // write the reply to a buffer first, so that an error cannot cut it off
		if err := write(&text, newest(), format); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", string(format))
		_, _ = w.Write(text.Bytes()) // the error is ignored: it means that the client has disconnected
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the metrics are at "+Path, http.StatusNotFound)
	})
	return mux
}

// Limits for an HTTP connection, because any user of the machine can connect.
const (
	readTime  = 10 * time.Second
	writeTime = 30 * time.Second
	idleTime  = 5 * time.Minute // time between two requests over one connection
	maxHeader = 16 << 10        // maximum size of the request's headers in bytes
)

// Serve serves HTTP on the listener until ctx ends, closes the listener, and
// returns the cause of ctx.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // the error is ignored: Close interrupts running requests, which the client repeats
	err := server.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return context.Cause(ctx)
	}
	return err
}
