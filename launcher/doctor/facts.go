package doctor

import (
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

// Facts holds the system properties of a host and the error of its clock.
type Facts struct {
	protocol.HostFacts

	// Skew is how many seconds the host's clock is ahead of this machine's.
	// SkewError is the possible measurement error in seconds; a negative value
	// means that Skew is unknown.
	Skew      float64 `json:"clock_skew_s"`
	SkewError float64 `json:"clock_skew_error_s"`
}

// factsOf returns the facts in the report r. asked and answered are the
// readings of this machine's clock when it sent the request and received r;
// the clock error is computed from them. The result is nil if r has no facts.
func factsOf(r protocol.HostReport, asked, answered time.Time) *Facts {
	if r.Facts == nil {
		return nil
	}
	trip := max(0, answered.Sub(asked)-r.Took)
	middle := asked.Add(trip / 2)
	// Compute in seconds: a time.Duration overflows if the clock is off by
	// centuries.
	now := time.Unix(0, r.Now)
	return &Facts{HostFacts: *r.Facts, Skew: float64(now.Unix()-middle.Unix()) + float64(now.Nanosecond()-middle.Nanosecond())/1e9, SkewError: (trip / 2).Seconds()}
}

// formatSeconds formats a number of seconds in a suitable unit, such as "3 hours".
func formatSeconds(seconds float64) string {
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
