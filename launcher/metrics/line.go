package metrics

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// maxLine is the number of bytes of a line in which Line searches for metrics,
// counted from the start of the line.
const maxLine = 4 << 10

// Line returns the metrics that a line of output reports, or nil if it reports
// none. If both a pattern and a built-in format find the same metric, Line
// returns the pattern's value. Line does not retain its arguments.
func Line(line []byte, patterns []Pattern) Sample {
	line = line[:min(len(line), maxLine)]
	for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
		line = line[:len(line)-1]
	}
	if bytes.IndexByte(line, '\r') >= 0 { // the program redrew the line: search only its last state
		line = line[bytes.LastIndexByte(line, '\r')+1:]
	}
	if bytes.IndexByte(line, esc) >= 0 {
		line = plain(line)
	}
	s := scan{text: line}
	s.run()
	for _, p := range patterns {
		p.find(line, &s.found)
	}
	return s.found
}

// esc is the byte that begins a terminal control sequence.
const esc = 27

// plain returns a copy of the line without terminal control sequences.
func plain(line []byte) []byte {
	out := make([]byte, 0, len(line))
	for i := 0; i < len(line); i++ {
		if line[i] != esc || i+1 == len(line) {
			out = append(out, line[i])
			continue
		}
		// This sequence extends to its final byte, which is in the range @ to
		// ~. Other sequences that programs print have two bytes.
		if i++; line[i] == '[' {
			for i++; i < len(line) && (line[i] < '@' || line[i] > '~'); i++ {
			}
		}
	}
	return out
}

// scan holds the state of the search for metrics in one line.
type scan struct {
	text    []byte
	found   Sample
	bar     bool       // true if a progress bar was found; after a bar, any name that is joined to a number by = or : is a metric
	pair    [2]float64 // the last "a/b" in brackets; it counts as step and total only if the line has other metrics too
	hasPair bool
	over    bool // true if the search has ended, because the line shows the progress of something other than training, such as a download
}

func (s *scan) run() {
	t := s.text
	if i := bytes.IndexByte(t, '{'); i >= 0 && s.record(i) {
		return
	}
	last := byte(before)
	for i := 0; i < len(t) && !s.over; i++ {
		c := class[t[i]]
		if last&(c>>1)&before != 0 {
			if end := s.number(i); end > i {
				i, c = end-1, class[t[end-1]]
			}
		}
		last = c
	}
	switch {
	case s.over:
		s.found = nil
	case s.hasPair && len(s.found) > 0:
		if _, named := s.found.Get(Step); !named {
			s.found.set(Step, s.pair[0])
			s.found.set(Steps, s.pair[1])
		}
	}
}

// number examines the text at i for a number and adds the metric that it
// belongs to. It returns the index at which the search continues, or 0 if
// there is no number at i.
func (s *scan) number(i int) (next int) {
	t := s.text
	end, natural := numeral(t, i)
	if end == 0 {
		return 0
	}
	whole := complete(t, end)
	if !whole && !isLetter(t[end]) && t[end] != '/' { // skip a date, a time, an address or a version
		for end < len(t) && t[end] != ' ' && t[end] != ',' {
			end++
		}
		return end
	}
	n := nameBefore(t, i)
	if natural {
		if after := s.progress(n, i); after > 0 {
			return after
		}
	}
	switch {
	case !whole || n.bracket && n.kind != epoch:
		s.unit(i, end)
	case n.kind == value:
		s.take(n.text(), i)
	case n.kind == epoch && isDigit(t[i]):
		s.take(Epoch, i)
	case n.kind == other && s.bar && n.joined && validName(string(n.word)) && !unfit(string(lower(n.word))):
		s.take(n.text(), i)
	default:
		s.unit(i, end)
	}
	return end
}

// take adds the number at i as the metric with the given name.
func (s *scan) take(name string, i int) {
	f, _ := number(s.text, i)
	s.found.set(name, f)
}

// unit looks at what follows the number from i to end. If this is a unit such
// as it/s or ms/step, unit adds the number as a rate.
func (s *scan) unit(i, end int) {
	name, factor, inverse := unitAfter(s.text, end)
	if name == "" {
		return
	}
	f, _ := number(s.text, i)
	switch {
	case math.IsNaN(f):
	case inverse && f > 0:
		s.found.set(name, factor/f)
	case !inverse:
		s.found.set(name, f)
	}
}

// progress adds the natural number at i if it is a count of steps or epochs.
// It returns the index at which the search continues, or 0 if the number is
// not such a count.
func (s *scan) progress(n named, i int) (next int) {
	t := s.text
	done, end := count(t, i)
	if end == 0 {
		return 0
	}
	of, after := 0.0, 0
	if j := skip(t, end); j < len(t) && t[j] == '/' {
		if of, after = count(t, skip(t, j+1)); after > 0 && !complete(t, after) {
			after = 0
		}
	}
	switch {
	case after > 0 && (n.kind == position || n.kind == weak):
		s.found.set(Step, done)
		s.found.set(Steps, of)
	case after > 0 && n.kind == epoch:
		s.found.set(Epoch, done)
		s.found.set(Epochs, of)
	case after > 0 && len(n.word) == 0 && s.isBar(i, after):
		s.bar = true
		s.found.set(Step, done)
		s.found.set(Steps, of)
	case after > 0 && len(n.word) == 0 && s.mayCount(n, after):
		s.pair, s.hasPair = [2]float64{done, of}, true
	case after > 0:
		return 0
	case n.kind == position && !n.bracket && complete(t, end):
		s.found.set(Step, done)
		return end
	case bytes.HasPrefix(t[end:], []byte("it [")): // a bar of tqdm whose total is unknown
		s.bar = true
		s.found.set(Step, done)
		return end
	default:
		return 0
	}
	return after
}

// mayCount reports whether "a/b" without a name may be a count of steps. end
// is its end. It may be one in [100/1000], [640/60000 (1%)] and "epoch 1: 100
// / 1000", but not in the date [11/30 12:00:00].
func (s *scan) mayCount(n named, end int) bool {
	rest := s.text[skip(s.text, end):]
	if n.bracket {
		return bytes.HasPrefix(rest, []byte("]")) || bytes.HasPrefix(rest, []byte("("))
	}
	_, afterEpoch := s.found.Get(Epoch)
	return n.joined && afterEpoch
}

func skip(t []byte, i int) int {
	for i < len(t) && t[i] == ' ' {
		i++
	}
	return i
}

// isBar reports whether "a/b" from i to end is the step count of a progress
// bar of tqdm, Keras or Rich. If a tqdm bar counts something other than steps,
// isBar ends the search in this line.
func (s *scan) isBar(i, end int) bool {
	head, rest := bytes.TrimRight(s.text[:i], " "), s.text[end:]
	switch {
	case bytes.HasSuffix(head, []byte("|")) && bytes.HasPrefix(rest, []byte(" [")) && bytes.Contains(head, []byte("%|")):
		inside, _, _ := bytes.Cut(rest, []byte("]"))
		s.over = !ofSteps(inside)
		return !s.over
	case len(bytes.Trim(head, " \b")) == 0: // a bar of Keras begins the line
		return hasAny(rest, "━", "/step", "ETA:")
	case hasAny(head, "━", "╸", "╺"):
		return ofSteps(rest)
	}
	return false
}

// ofSteps reports whether t contains a unit of training speed, such as it/s.
// Progress bars that count steps contain one.
func ofSteps(t []byte) bool {
	return hasAny(t, "it/s", "s/it", "step/s", "steps/s", "s/step", "batch/s", "s/batch", "batches/s")
}

func hasAny(t []byte, texts ...string) bool {
	for _, text := range texts {
		if bytes.Contains(t, []byte(text)) {
			return true
		}
	}
	return false
}

// parse parses a text that must consist of one number.
func parse(text string) (float64, bool) {
	f, err := strconv.ParseFloat(text, 64)
	return f, len(text) <= maxDigits && (err == nil || math.IsInf(f, 0)) && !strings.ContainsAny(text, "xX")
}
