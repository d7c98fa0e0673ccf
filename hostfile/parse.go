package hostfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

const (
	maxLine  = 4096  // maximum length of a line, in bytes without its line end
	maxHosts = 65536 // maximum number of hosts in a file
)

// Parse reads a resource file from r to its end and returns its hosts, at
// least one. The parameter file is the name of the file in positions and
// errors.
func Parse(r io.Reader, file string) ([]Host, error) {
	lines := bufio.NewScanner(r)
	// The scanner's buffer must hold a line of maxLine bytes, its line end and
	// a byte order mark.
	lines.Buffer(make([]byte, 0, maxLine), maxLine+8)
	var read list
	pos := Position{File: file, Line: 1}
	for ; lines.Scan(); pos.Line++ {
		line := lines.Text()
		if pos.Line == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		if _, err := read.add(line, pos); err != nil {
			return nil, err
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, at(pos, errLongLine)
	} else if err != nil {
		return nil, at(pos, err)
	}
	if len(read.hosts) == 0 {
		return nil, hinted(exampleHint, "%s: no host in the file, expected at least one line that names one", file)
	}
	return read.hosts, nil
}

// exampleHint is the hint for a file or a --host flag that names no host.
const exampleHint = `a line is a host and its GPU ids, such as "gpu01: 0,1", or a host alone`

// ParseFile reads the resource file at path. If the file cannot be read, the
// error contains the path and wraps the cause, such as fs.ErrNotExist.
func ParseFile(path string) ([]Host, error) {
	var hosts []Host
	f, err := os.Open(path)
	if err == nil {
		defer f.Close() // opened for reading: an error of Close does not matter
		hosts, err = Parse(f, path)
	}
	var failed *fs.PathError
	if !errors.As(err, &failed) {
		return hosts, err
	}
	// failed contains the path, which the message already names, so use only
	// the error inside failed.
	m := &mistake{text: fmt.Sprintf("read resource file %s: %v", path, failed.Err), cause: failed}
	if errors.Is(failed, fs.ErrNotExist) {
		m.hint = "check the path; to name hosts without a file, give --host LINE"
	}
	return nil, m
}

// ParseLines parses the values of the flags --host. Each value must name a
// host. The position of the first value is "--host:1", of the second
// "--host:2", and so on.
func ParseLines(lines []string) ([]Host, error) {
	var read list
	for i, line := range lines {
		pos := Position{File: "--host", Line: i + 1}
		named, err := read.add(line, pos)
		if err != nil {
			return nil, err
		}
		if !named {
			return nil, at(pos, hinted(exampleHint, "expected a host, found nothing"))
		}
	}
	if len(read.hosts) == 0 {
		return nil, hinted(exampleHint, "--host: expected at least one line that names a host")
	}
	return read.hosts, nil
}

// Join returns hosts followed by more, without modifying either. If a host is
// in both lists, it returns an error with both positions.
func Join(hosts, more []Host) ([]Host, error) {
	var all list
	for _, host := range slices.Concat(hosts, more) {
		if err := all.append(host); err != nil {
			return nil, err
		}
	}
	return all.hosts, nil
}

// list collects parsed hosts and detects duplicates.
type list struct {
	hosts []Host
	seen  map[string]Position // maps Host.key to the position of the line that named the host first
}

// add parses a line and adds its hosts to the list. It reports whether the
// line names a host.
func (l *list) add(line string, pos Position) (named bool, err error) {
	text, values, err := content(line)
	if err != nil {
		return false, at(pos, err)
	}
	if text == "" {
		return false, nil
	}
	hosts, err := parseHosts(text, values)
	if err != nil {
		return false, at(pos, err)
	}
	for _, host := range hosts {
		host.Pos = pos
		if err := l.append(host); err != nil {
			return true, err
		}
	}
	return true, nil
}

func (l *list) append(host Host) error {
	if len(l.hosts) == maxHosts {
		return at(host.Pos, wrong("more than %d hosts", maxHosts))
	}
	if first, twice := l.seen[host.key()]; twice {
		return at(host.Pos, hinted("put all devices of a host on one line",
			"host %s is named twice, first at %s", bracketed(host.Name), first))
	}
	if l.seen == nil {
		l.seen = map[string]Position{}
	}
	l.seen[host.key()] = host.Pos
	l.hosts = append(l.hosts, host)
	return nil
}

// content returns a line without its comment and surrounding spaces, and the
// values of its variables, which cutVariables cuts out. Outside these values,
// content accepts only ASCII. It thereby rejects a character that only looks
// like a space or a dash.
func content(line string) (text string, values []string, err error) {
	if len(line) > maxLine {
		return "", nil, errLongLine
	}
	if strings.IndexByte(line, 0) >= 0 {
		return "", nil, hinted("is it a text file? save it as UTF-8", "NUL byte, expected text")
	}
	line = strings.TrimRight(line, "\r\n")
	if strings.Contains(line, "\r") {
		return "", nil, wrong("carriage return inside a line, expected lines that end with LF or CRLF")
	}
	if line, values, err = cutVariables(line); err != nil {
		return "", nil, err
	}
	line = strings.Trim(line, " \t\n")
	for _, r := range line {
		switch {
		case r < ' ' && r != '\t', r == 0x7f:
			return "", nil, wrong("control character %q, expected text", r)
		case r > '~':
			return "", nil, hinted("retype a copied space or dash; write an international name in its xn-- form",
				"character %q, expected letters, digits and signs of ASCII", r)
		}
	}
	return line, values, nil
}

var errLongLine = wrong("line is longer than %d bytes", maxLine)

// mistake is an error for a mistake in the user's text, or for a file that
// cannot be read.
type mistake struct {
	text  string
	hint  string // one line of advice; empty if there is none
	cause error  // error of the operating system; nil for a mistake in the text
}

func (m *mistake) Error() string { return m.text }

func (m *mistake) Unwrap() error { return m.cause }

// Hint returns one line of advice for the user, or "".
func (m *mistake) Hint() string { return m.hint }

func wrong(format string, args ...any) error {
	return &mistake{text: fmt.Sprintf(format, args...)}
}

func hinted(hint, format string, args ...any) error {
	return &mistake{text: fmt.Sprintf(format, args...), hint: hint}
}

// quoted returns text in the form for an error message: in quotes, with
// control characters escaped, and cut to 80 bytes.
func quoted(text string) string {
	const most = 80
	if len(text) > most {
		return fmt.Sprintf("%q...", text[:most])
	}
	return fmt.Sprintf("%q", text)
}

// at returns the error err with the position, as file:line, in front.
func at(pos Position, err error) error { return fmt.Errorf("%s: %w", pos, err) }
