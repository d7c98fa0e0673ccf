package metrics

import (
	"fmt"
	"regexp"
	"strings"
)

// Pattern is a user's regular expression that finds the value of a metric in a
// line.
type Pattern struct {
	name   string
	regexp *regexp.Regexp // has exactly one capture group, which matches the value
}

// Name returns the name of the metric.
func (p Pattern) Name() string { return p.name }

// maxPattern is the maximum length of a regular expression in bytes.
const maxPattern = 1 << 10

// parsePattern parses a pattern of the form NAME=REGEXP.
func parsePattern(text string) (Pattern, error) {
	name, source, found := strings.Cut(text, "=")
	switch {
	case !found || source == "":
		return Pattern{}, fmt.Errorf("metric %q: want NAME=REGEXP, such as 'loss=LOSS ([0-9.]+)'", text)
	case !validName(name):
		return Pattern{}, fmt.Errorf("metric %q: bad name %q: want a letter, then at most %d letters, digits and any of _ - / . @", text, name, maxName-1)
	case len(source) > maxPattern:
		return Pattern{}, fmt.Errorf("metric %s: its pattern has %d bytes, at most %d are allowed", name, len(source), maxPattern)
	}
	compiled, err := regexp.Compile(source)
	if err != nil {
		return Pattern{}, fmt.Errorf("metric %s: %w", name, err)
	}
	if n := compiled.NumSubexp(); n != 1 {
		return Pattern{}, fmt.Errorf("metric %s: the pattern %s has %d groups, want one, around the number: such as 'LOSS ([0-9.]+)'; (?:...) groups without capturing", name, source, n)
	}
	return Pattern{name: name, regexp: compiled}, nil
}

// maxPatterns is the maximum number of patterns for one job.
const maxPatterns = 16

// ParsePatterns parses a job's patterns, the values of the flag --metric. Each
// has the form NAME=REGEXP, and the regular expression's only group matches
// the number.
func ParsePatterns(texts []string) (all []Pattern, err error) {
	if len(texts) > maxPatterns {
		return nil, fmt.Errorf("%d patterns of metrics, at most %d are allowed", len(texts), maxPatterns)
	}
	for _, text := range texts {
		p, err := parsePattern(text)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// find adds the metric's value to s if the line matches and the group is a
// number.
func (p Pattern) find(line []byte, s *Sample) {
	found := p.regexp.FindSubmatch(line)
	if found == nil {
		return
	}
	if n, end := number(found[1], 0); end > 0 && end == len(found[1]) {
		s.set(p.name, n)
	}
}
