package metrics

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Names of the metrics that have a meaning for plx. Other metrics keep the
// name that the program prints, in lower case.
const (
	Step   = "step"             // number of completed training steps
	Steps  = "steps"            // total number of steps, of the training or of the current epoch
	Epoch  = "epoch"            // current epoch; some formats report a fraction
	Epochs = "epochs"           // total number of epochs
	Rate   = "steps_per_second" // training speed; a program's seconds per step are converted to this
)

// Value is a metric's name and value.
type Value struct {
	Name   string
	Number Number
}

// Sample has the metrics that a task reported at one time. Each name occurs at
// most once.
type Sample []Value

// Get returns the value of the metric with the given name.
func (s Sample) Get(name string) (Number, bool) {
	i := slices.IndexFunc(s, func(v Value) bool { return v.Name == name })
	if i < 0 {
		return 0, false
	}
	return s[i].Number, true
}

// maxValues is the maximum number of metrics in a sample.
const maxValues = 32

// set adds or replaces the value of a metric. If the sample is full, set
// ignores a new name.
func (s *Sample) set(name string, n float64) {
	for i := range *s {
		if (*s)[i].Name == name {
			(*s)[i].Number = Number(n)
			return
		}
	}
	if len(*s) < maxValues {
		*s = append(*s, Value{name, Number(n)})
	}
}

// Number is a number that may be NaN or infinite. JSON has no such numbers, so
// that they are encoded as the strings "NaN", "+Inf" and "-Inf".
type Number float64

// MarshalJSON encodes the number; NaN and infinities become strings.
func (n Number) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.AppendQuote(nil, strconv.FormatFloat(f, 'g', -1, 64)), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON decodes a number that MarshalJSON encoded.
func (n *Number) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case `"NaN"`:
		*n = Number(math.NaN())
	case `"+Inf"`:
		*n = Number(math.Inf(1))
	case `"-Inf"`:
		*n = Number(math.Inf(-1))
	default:
		if err := json.Unmarshal(text, (*float64)(n)); err != nil {
			return fmt.Errorf("metric %s: %w", text, err)
		}
	}
	return nil
}
