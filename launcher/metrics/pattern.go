package metrics

import (
	"fmt"
	"regexp"
	"strings"
)

// Pattern is a user's way to find a value in a line.
type Pattern struct {
	name   string
	regexp *regexp.Regexp // has one group
}

// Name is the name of the value.
func (p Pattern) Name() string { return p.name }

// maxPattern bounds the text of a pattern, in bytes.
const maxPattern = 1 << 10

// parsePattern reads NAME=REGEXP.
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

// maxPatterns bounds the patterns of a job.
const maxPatterns = 16

// ParsePatterns reads the patterns of a job, each NAME=REGEXP: the values of --metric. The
// group of a regular expression matches the number.
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

// find sets the pattern's value if the line has it.
func (p Pattern) find(line []byte, s *Sample) {
	found := p.regexp.FindSubmatch(line)
	if found == nil {
		return
	}
	if n, end := number(found[1], 0); end > 0 && end == len(found[1]) {
		s.set(p.name, n)
	}
}
