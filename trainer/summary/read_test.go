package summary

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// Line is one decoded line of the JSON lines file.
type Line struct {
	Step   uint64
	Time   time.Time
	Values map[string]float64 // values by name; names of metrics begin with "metrics/"
}

// maxLine is the largest accepted length of a line in bytes.
const maxLine = 1 << 20

// ReadLines reads a JSON lines file that a Writer has written. It ignores a
// last line without a newline, which a process that died leaves. Errors name
// the number of the line.
func ReadLines(r io.Reader) ([]Line, error) {
	in := bufio.NewReaderSize(r, maxLine)
	var lines []Line
	for {
		text, err := in.ReadSlice('\n')
		switch {
		case err == io.EOF:
			return lines, nil
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("line %d: longer than %d bytes", len(lines)+1, maxLine)
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", len(lines)+1, err)
		}
		line, err := parseLine(bytes.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", len(lines)+1, err)
		}
		lines = append(lines, line)
	}
}

func parseLine(text []byte) (Line, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return Line{}, err
	}
	line := Line{Values: map[string]float64{}}
	if err := json.Unmarshal(members["step"], &line.Step); err != nil {
		return Line{}, fmt.Errorf("step: %w", err)
	}
	at, err := number(members["time"])
	if err != nil || math.Abs(at) >= 1<<53 || math.IsNaN(at) {
		return Line{}, fmt.Errorf("time %s: want Unix seconds", members["time"])
	}
	whole, rest := math.Modf(at)
	line.Time = time.Unix(int64(whole), int64(math.Round(rest*1e6))*1000)
	for name, value := range members {
		if name == "step" || name == "time" || name == "metrics" {
			continue
		}
		if line.Values[name], err = number(value); err != nil {
			return Line{}, fmt.Errorf("%q: %w", name, err)
		}
	}
	return line, line.addMetrics(members["metrics"])
}

func (l Line) addMetrics(text json.RawMessage) error {
	if text == nil {
		return nil
	}
	var metrics map[string]json.RawMessage
	if err := json.Unmarshal(text, &metrics); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	for name, value := range metrics {
		v, err := number(value)
		if err != nil {
			return fmt.Errorf("metric %q: %w", name, err)
		}
		l.Values[metricsPrefix+name] = v
	}
	return nil
}

// number decodes a JSON number, or one of the strings "NaN", "+Inf" and
// "-Inf".
func number(text json.RawMessage) (float64, error) {
	switch string(text) {
	case `"NaN"`:
		return math.NaN(), nil
	case `"+Inf"`:
		return math.Inf(1), nil
	case `"-Inf"`:
		return math.Inf(-1), nil
	}
	if len(text) == 0 || text[0] != '-' && (text[0] < '0' || text[0] > '9') {
		return 0, fmt.Errorf("%s is not a number", text)
	}
	return strconv.ParseFloat(string(text), 64)
}
