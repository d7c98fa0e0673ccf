package summary

import (
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
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
	GradientNorm       float64 // before clipping; NaN means unknown and is not written
	SamplesPerSecond   float64

	// The parts of the step's time.
	Compute, Communication, Wait time.Duration

	Metrics    map[string]float64 // by name
	Histograms []Histogram        // only in the event file
}

// Evaluation is the report of an evaluation.
type Evaluation struct {
	Step    uint64 // number of steps that the variables had seen
	Loss    float64
	Metrics map[string]float64 // by name
}

// scalar is one value, with its name in both files.
type scalar struct {
	name  string // the name in both files; the event file adds metricsPrefix to a metric's
	value float64
}

// metricsPrefix distinguishes metrics from the names that every step has.
const metricsPrefix = "metrics/"

// record is the content of one write.
type record struct {
	step           uint64
	at             time.Time
	fixed, metrics []scalar // the scalars of every step, and the program's metrics without metricsPrefix
	histograms     []Histogram
}

func (s Scalars) record() record {
	r := record{step: s.Step, at: s.Time, fixed: []scalar{{"loss", s.Loss}, {"learning_rate", s.LearningRate}}}
	if !math.IsNaN(s.GradientNorm) {
		r.fixed = append(r.fixed, scalar{"gradient_norm", s.GradientNorm})
	}
	r.fixed = append(r.fixed, scalar{"samples_per_second", s.SamplesPerSecond},
		scalar{"compute_ms", milliseconds(s.Compute)},
		scalar{"communication_ms", milliseconds(s.Communication)},
		scalar{"wait_ms", milliseconds(s.Wait)})
	r.metrics, r.histograms = scalars(s.Metrics), s.Histograms
	return r
}

// scalars sorts metrics by name. Both formats require UTF-8.
func scalars(metrics map[string]float64) (all []scalar) {
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		all = append(all, scalar{strings.ToValidUTF8(name, "\ufffd"), metrics[name]})
	}
	return all
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

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
	name, _ := json.Marshal(s.name) // a string always has a JSON form
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

// An event file is a sequence of TFRecords, each
//
//	uint64  length of the data
//	uint32  masked CRC-32C of those eight bytes
//	bytes   the data
//	uint32  masked CRC-32C of the data
//
// All numbers are little-endian. The data is a protocol buffer of TensorFlow's
// message Event (core/util/event.proto, core/framework/summary.proto). These
// fields are used:
//
//	Event:   1 double wall_time, 2 int64 step, 3 string file_version or 5 Summary
//	Summary: 1 repeated Value
//	Value:   1 string tag, 2 float simple_value or 5 HistogramProto
//
// histogram.go and graph.go have the fields of histograms and graphs.
//
// The first record holds fileVersion only.
const fileVersion = "brain.Event:2"

// The keys of protocol buffer fields: the field's number times 8, plus 0 for a
// varint, 1 for eight bytes, 2 for a length and that many bytes, 5 for four
// bytes.
const (
	eventTime    = 1<<3 | 1
	eventStep    = 2 << 3
	eventVersion = 3<<3 | 2
	eventSummary = 5<<3 | 2
	summaryValue = 1<<3 | 2
	valueTag     = 1<<3 | 2
	valueNumber  = 2<<3 | 5
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked is the checksum of a TFRecord: CRC-32C, rotated and shifted, so that
// the checksum of data that contains checksums is no weaker.
func masked(data []byte) uint32 {
	crc := crc32.Checksum(data, castagnoli)
	return (crc>>15 | crc<<17) + 0xa282ead8
}

func appendRecord(b, data []byte) []byte {
	length := len(b)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, masked(b[length:]))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, masked(data))
}

func versionEvent(at time.Time) []byte {
	return appendBytes(appendTime(nil, at), eventVersion, []byte(fileVersion))
}

// event encodes the record as an Event.
func (r record) event() []byte {
	b := appendTime(nil, r.at)
	if r.step != 0 { // a field of value 0 is left out
		b = binary.AppendUvarint(append(b, eventStep), r.step)
	}
	var values []byte
	for _, s := range r.fixed {
		values = appendBytes(values, summaryValue, s.appendValue(nil, ""))
	}
	for _, s := range r.metrics {
		values = appendBytes(values, summaryValue, s.appendValue(nil, metricsPrefix))
	}
	for _, h := range r.histograms {
		values = appendBytes(values, summaryValue, h.appendValue(nil))
	}
	return appendBytes(b, eventSummary, values)
}

func (s scalar) appendValue(b []byte, prefix string) []byte {
	b = appendBytes(b, valueTag, []byte(prefix+s.name))
	return binary.LittleEndian.AppendUint32(append(b, valueNumber), math.Float32bits(float32(s.value)))
}

func appendTime(b []byte, at time.Time) []byte {
	return binary.LittleEndian.AppendUint64(append(b, eventTime), math.Float64bits(seconds(at)))
}

func appendBytes(b []byte, key byte, data []byte) []byte {
	b = binary.AppendUvarint(append(b, key), uint64(len(data)))
	return append(b, data...)
}
