package metrics

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// maxLine is the number of bytes at the start of a line that are searched for
// metrics.
const maxLine = 4 << 10

// Line returns the metrics that a line of output reports, or nil if it reports
// none. If a pattern and a format that Line knows find the same metric, the
// pattern's value counts. Line does not retain its arguments.
func Line(line []byte, patterns []Pattern) Sample {
	line = line[:min(len(line), maxLine)]
	for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
		line = line[:len(line)-1]
	}
	if bytes.IndexByte(line, '\r') >= 0 { // search only the last state of a line that was redrawn
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
		// This sequence extends to its final byte, which is @ to ~. Other
		// sequences that programs print have two bytes.
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
	bar     bool       // a progress bar was found; after it, any name joined to a number by = or : is a metric
	pair    [2]float64 // the last "a/b" in brackets; it means step and steps only if the line has other metrics too
	hasPair bool
	over    bool // the line has a progress bar of a download or the like, so the search has ended
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

// number examines the text at i, which may be a number. It returns the index
// at which the search continues, or 0 if there is no number.
func (s *scan) number(i int) (next int) {
	t := s.text
	end, natural := numeral(t, i)
	if end == 0 {
		return 0
	}
	whole := complete(t, end)
	if !whole && !isLetter(t[end]) && t[end] != '/' { // a date, a time, an address or a version
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

// unit adds the number from i to end as a rate if a unit such as it/s or
// ms/step follows.
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

// progress adds the natural number at i as a count of steps or epochs. It
// returns the index at which the search continues, or 0 if the number is no
// such count.
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
	case bytes.HasPrefix(t[end:], []byte("it [")): // tqdm without a known total
		s.bar = true
		s.found.set(Step, done)
		return end
	default:
		return 0
	}
	return after
}

// mayCount reports whether an unnamed "a/b" that ends at end may be a count of
// steps. It may in [100/1000], [640/60000 (1%)] and "epoch 1: 100 / 1000", but
// not in the date [11/30 12:00:00].
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
	case len(bytes.Trim(head, " \b")) == 0: // Keras
		return hasAny(rest, "━", "/step", "ETA:")
	case hasAny(head, "━", "╸", "╺"):
		return ofSteps(rest)
	}
	return false
}

// ofSteps reports whether t contains a unit of training speed, such as it/s,
// as progress bars that count steps do.
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

// parse parses a text that consists of one number only.
func parse(text string) (float64, bool) {
	f, err := strconv.ParseFloat(text, 64)
	return f, len(text) <= maxDigits && (err == nil || math.IsInf(f, 0)) && !strings.ContainsAny(text, "xX")
}
