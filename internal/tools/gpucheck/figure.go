package main

import "fmt"

// figure is a measured time.
type figure struct {
	What    string  `json:"what"`
	Ms      float64 `json:"ms"`
	Work    float64 `json:"work,omitempty"`     // what is done in that time, in Unit; 0 means that only the time counts
	Unit    string  `json:"unit,omitempty"`     // GFLOP or GB
	TorchMs float64 `json:"torch_ms,omitempty"` // PyTorch's time for the same; 0 means unknown
}

// speed is a time, and the work that is done in it.
func (f figure) speed(ms float64) string {
	text := fmt.Sprintf("%.3g ms", ms)
	if ms < 0.1 {
		text = fmt.Sprintf("%.3g µs", ms*1000)
	}
	if f.Work > 0 && ms > 0 {
		text += fmt.Sprintf(", %.4g %s/s", f.Work/ms*1000, f.Unit)
	}
	return text
}

// beside is the figure with PyTorch's time.
func (f figure) beside(ms float64) figure {
	f.TorchMs = ms
	return f
}
