package summary

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Scalars is the report of one step.
type Scalars struct {
	Step uint64
	Time time.Time // the zero time means now

	Loss, LearningRate float64
	GradientNorm       float64 // before clipping; a number below 0 means unknown and is not written
	SamplesPerSecond   float64

	// The parts of the step's time.
	Compute, Communication, Wait time.Duration

	Metrics map[string]float64 // by name
}

// scalar is one value, with its name in both files.
type scalar struct {
	name  string
	value float64
}

// metricsPrefix distinguishes metrics from the names that every step has.
const metricsPrefix = "metrics/"

// record is the content of one write.
type record struct {
	step           uint64
	at             time.Time
	fixed, metrics []scalar // names of metrics are without metricsPrefix
}

func (s Scalars) record() record {
	r := record{step: s.Step, at: s.Time, metrics: sorted(s.Metrics), fixed: []scalar{
		{"loss", s.Loss}, {"learning_rate", s.LearningRate},
	}}
	if !(s.GradientNorm < 0) {
		r.fixed = append(r.fixed, scalar{"gradient_norm", s.GradientNorm})
	}
	r.fixed = append(r.fixed, scalar{"samples_per_second", s.SamplesPerSecond},
		scalar{"compute_ms", milliseconds(s.Compute)},
		scalar{"communication_ms", milliseconds(s.Communication)},
		scalar{"wait_ms", milliseconds(s.Wait)})
	return r
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func sorted(metrics map[string]float64) []scalar {
	list := make([]scalar, 0, len(metrics))
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		// Both formats require UTF-8.
		list = append(list, scalar{strings.ToValidUTF8(name, "\ufffd"), metrics[name]})
	}
	return list
}

// appendLine writes the record as a line of JSON.
func (r record) appendLine(b []byte) []byte {
	b = strconv.AppendUint(append(b, `{"step":`...), r.step, 10)
	b = strconv.AppendFloat(append(b, `,"time":`...), seconds(r.at), 'f', 6, 64)
	for _, s := range r.fixed {
		b = s.appendMember(append(b, ','))
	}
	if len(r.metrics) > 0 {
		b = append(b, `,"metrics":{`...)
		for i, s := range r.metrics {
			if i > 0 {
				b = append(b, ',')
			}
			b = s.appendMember(b)
		}
		b = append(b, '}')
	}
	return append(b, "}\n"...)
}

func (s scalar) appendMember(b []byte) []byte {
	name, err := json.Marshal(s.name)
	if err != nil {
		panic(err) // a string always has a JSON form
	}
	b = append(append(b, name...), ':')
	if math.IsNaN(s.value) || math.IsInf(s.value, 0) {
		return strconv.AppendQuote(b, strconv.FormatFloat(s.value, 'g', -1, 64))
	}
	return strconv.AppendFloat(b, s.value, 'g', -1, 64)
}

// seconds returns a time in Unix seconds, exact to about a microsecond.
func seconds(at time.Time) float64 {
	return float64(at.Unix()) + float64(at.Nanosecond())/1e9
}
