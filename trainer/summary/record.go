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

// Scalars holds the values that the chief (worker 0) reports of one training
// step.
type Scalars struct {
	Step uint64
	Time time.Time // when the step ended; the zero time stands for the time of the call that writes the values

	Loss, LearningRate float64
	GradientNorm       float64 // global norm of the gradient before clipping; NaN means unknown and is not written
	SamplesPerSecond   float64

	// How long the parts of the step took: computing gradients, exchanging
	// gradients and values, and waiting for other tasks. Communication
	// overlaps with the other two.
	Compute, Communication, Wait time.Duration

	Metrics    map[string]float64 // the program's metrics; the key is the name of the metric
	Histograms []Histogram        // only the event file holds histograms, the JSON lines do not
}

// Evaluation holds the loss and the metrics of one evaluation of the model.
type Evaluation struct {
	Step    uint64 // number of training steps after which the model was evaluated
	Loss    float64
	Metrics map[string]float64 // the program's metrics; the key is the name of the metric
}

// scalar is a named number that a Writer writes to the event file and to the
// JSON lines.
type scalar struct {
	name  string // name in the JSON lines; in the event file, names of metrics get the prefix metricsPrefix
	value float64
}

// metricsPrefix begins the name of a program's own metric in the event file,
// so that it cannot equal a built-in name such as "loss".
const metricsPrefix = "metrics/"

// record holds the values that one call of Step or Evaluation writes to both
// files.
type record struct {
	step           uint64
	at             time.Time
	fixed, metrics []scalar // values with built-in names such as "loss", and the program's own metrics
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

// scalars returns the metrics sorted by name. It makes the names valid UTF-8,
// because JSON and protocol buffers require that.
func scalars(metrics map[string]float64) (all []scalar) {
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		all = append(all, scalar{strings.ToValidUTF8(name, "\ufffd"), metrics[name]})
	}
	return all
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// appendLine appends the record to b as one line of JSON.
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
	name, _ := json.Marshal(s.name) // Marshal cannot fail for a string
	b = append(append(b, name...), ':')
	if math.IsNaN(s.value) || math.IsInf(s.value, 0) {
		return strconv.AppendQuote(b, strconv.FormatFloat(s.value, 'g', -1, 64))
	}
	return strconv.AppendFloat(b, s.value, 'g', -1, 64)
}

// seconds returns the time at as Unix seconds. A float64 holds them with a
// precision of about a microsecond.
func seconds(at time.Time) float64 {
	return float64(at.Unix()) + float64(at.Nanosecond())/1e9
}

// fileVersion is the content of the first record of every event file. A
// TensorBoard event file is a sequence of TFRecords, and each has this form:
//
//	uint64  length of the data
//	uint32  masked CRC-32C of those eight bytes
//	bytes   the data
//	uint32  masked CRC-32C of the data
//
// All numbers are little-endian. The data is a protocol buffer of TensorFlow's
// message Event (core/util/event.proto, core/framework/summary.proto). A
// Writer writes these fields:
//
//	Event:   1 double wall_time, 2 int64 step, 3 string file_version or 5 Summary
//	Summary: 1 repeated Value
//	Value:   1 string tag, 2 float simple_value or 5 HistogramProto
//
// The files histogram.go and graph.go list the fields of histograms and
// graphs.
const fileVersion = "brain.Event:2"

// The keys of the protocol buffer fields of an event. A key is the field's
// number times 8, plus the wire type: 0 for a varint, 1 for eight bytes, 2 for
// a length and as many bytes, 5 for four bytes.
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

// masked returns the checksum of data as the TFRecord format defines it: the
// CRC-32C, rotated by 15 bits, plus a constant. The format masks checksums
// because a CRC of data that contains CRCs is weak.
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

// event encodes the record as TensorFlow's protocol buffer message Event.
func (r record) event() []byte {
	b := appendTime(nil, r.at)
	if r.step != 0 { // protocol buffers omit fields with the value 0
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
