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

// Path is where the metrics are.
const Path = "/metrics"

// Handler answers with what newest returns, which waits for nobody. A reader that does not ask for
// OpenMetrics gets the older text of Prometheus.
func Handler(newest func() Job) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, r *http.Request) {
		format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...)
		var text bytes.Buffer // so that an error is no half answer
		if err := write(&text, newest(), format); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", string(format))
		_, _ = w.Write(text.Bytes()) // a reader that has left needs no answer
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the metrics are at "+Path, http.StatusNotFound)
	})
	return mux
}

// Bounds of a request: any local user can send one.
const (
	readTime  = 10 * time.Second
	writeTime = 30 * time.Second
	idleTime  = 5 * time.Minute // between two scrapes over one connection
	maxHeader = 16 << 10        // bytes
)

// Serve answers on a listener, which it closes, until ctx ends. It returns the cause of that end.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // whoever is just being answered asks again
	err := server.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return context.Cause(ctx)
	}
	return err
}
