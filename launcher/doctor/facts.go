package doctor

import (
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

// Facts is what is known of a host by itself, and its clock.
type Facts struct {
	protocol.HostFacts

	// Skew is how far the host's clock is ahead of this machine's, in seconds, and
	// SkewError how far that may be wrong. Not known is SkewError < 0.
	Skew      float64 `json:"clock_skew_s"`
	SkewError float64 `json:"clock_skew_error_s"`
}

// factsOf returns the facts of a report, for which the host was asked and which it answered when this
// machine's clock showed these times. Nil: it has none.
func factsOf(r protocol.HostReport, asked, answered time.Time) *Facts {
	if r.Facts == nil {
		return nil
	}
	trip := max(0, answered.Sub(asked)-r.Took)
	middle := asked.Add(trip / 2)
	// Seconds and not a Duration: a clock may be centuries off.
	now := time.Unix(0, r.Now)
	return &Facts{HostFacts: *r.Facts, Skew: float64(now.Unix()-middle.Unix()) + float64(now.Nanosecond()-middle.Nanosecond())/1e9, SkewError: (trip / 2).Seconds()}
}

// span writes a number of seconds for people.
func span(seconds float64) string {
	switch {
	case seconds < 120:
		return fmt.Sprintf("%.0f s", seconds)
	case seconds < 2*3600:
		return fmt.Sprintf("%.0f min", seconds/60)
	case seconds < 2*24*3600:
		return fmt.Sprintf("%.0f hours", seconds/3600)
	}
	return fmt.Sprintf("%.0f days", seconds/24/3600)
}
