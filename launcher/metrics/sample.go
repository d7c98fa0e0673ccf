package metrics

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// The names of values that have a meaning of their own. All others are as the program
// prints them, in lower case.
const (
	Step   = "step"             // steps made
	Steps  = "steps"            // steps to be made, in all or in this epoch
	Epoch  = "epoch"            // a fraction in some formats
	Epochs = "epochs"           // epochs to be made
	Rate   = "steps_per_second" // also if the program reports seconds per step
)

// Value is a value with its name.
type Value struct {
	Name   string
	Number Number
}

// Sample is what a task has reported at one moment. No two values have the same name.
type Sample []Value

// Get returns the value of a name.
func (s Sample) Get(name string) (Number, bool) {
	i := slices.IndexFunc(s, func(v Value) bool { return v.Name == name })
	if i < 0 {
		return 0, false
	}
	return s[i].Number, true
}

// maxValues bounds the values of a sample.
const maxValues = 32

// set adds a value, or replaces it. A full sample takes no further name.
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

// Number is a number that may be NaN or infinite. JSON cannot write those as numbers: they
// are the strings "NaN", "+Inf" and "-Inf".
type Number float64

// MarshalJSON writes the number.
func (n Number) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.AppendQuote(nil, strconv.FormatFloat(f, 'g', -1, 64)), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads what MarshalJSON writes.
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
