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
	maxLine  = 4096  // bytes of a line, without its end
	maxHosts = 65536 // hosts of a file
)

// Parse reads a resource file from r to its end and returns at least one host.
// file is the file's name in positions and errors.
func Parse(r io.Reader, file string) ([]Host, error) {
	lines := bufio.NewScanner(r)
	// The scanner must hold a whole line with its end and a byte order mark.
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

// exampleHint is the hint for a file or a flag that names no host.
const exampleHint = `a line is a host and its GPU ids, such as "gpu01: 0,1", or a host alone`

// ParseFile reads the resource file at path. If the file cannot be read, the
// error names it and wraps the cause, such as fs.ErrNotExist.
func ParseFile(path string) ([]Host, error) {
	var hosts []Host
	f, err := os.Open(path)
	if err == nil {
		defer f.Close() // only read: closing it can lose nothing
		hosts, err = Parse(f, path)
	}
	var failed *fs.PathError
	if !errors.As(err, &failed) {
		return hosts, err
	}
	// The operating system's own error names the path once more.
	m := &mistake{text: fmt.Sprintf("read resource file %s: %v", path, failed.Err), cause: failed}
	if errors.Is(failed, fs.ErrNotExist) {
		m.hint = "check the path; to name hosts without a file, give --host LINE"
	}
	return nil, m
}

// ParseLines reads the values of --host. The first has the position "--host:1".
// Each must name a host.
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

// Join returns hosts followed by more. It changes none of its arguments. If a
// host is in both, the error gives the positions of the two.
func Join(hosts, more []Host) ([]Host, error) {
	var all list
	for _, host := range slices.Concat(hosts, more) {
		if err := all.append(host); err != nil {
			return nil, err
		}
	}
	return all.hosts, nil
}

// list collects the hosts read so far.
type list struct {
	hosts []Host
	seen  map[string]Position // by Host.key: where the host was read
}

// add takes a line, and reports whether it names hosts.
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

// content returns a line without its comment and without the space around it, and the
// values of its variables, see lift. Elsewhere it refuses all but ASCII, so that a
// character that only looks like a space or a dash is reported.
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
	if line, values, err = lift(line); err != nil {
		return "", nil, err
	}
	line = strings.Trim(line, " \t\n")
	for _, r := range line {
		switch {
		case r < ' ' && r != '\t', r == 0x7f:
			return "", nil, wrong("control character %q, expected text", r)
		case r > '~':
			return "", nil, hinted("type a copied space or dash anew; an international name is written in its xn-- form",
				"character %q, expected letters, digits and signs of ASCII", r)
		}
	}
	return line, values, nil
}

var errLongLine = wrong("line is longer than %d bytes", maxLine)

// mistake is an error in the user's text, or a file that cannot be read.
type mistake struct {
	text  string
	hint  string // how to write the text instead; empty means no hint
	cause error  // error of the operating system; nil means none
}

func (m *mistake) Error() string { return m.text }

func (m *mistake) Unwrap() error { return m.cause }

// Hint returns one line of advice, "" when there is none.
func (m *mistake) Hint() string { return m.hint }

func wrong(format string, args ...any) error {
	return &mistake{text: fmt.Sprintf(format, args...)}
}

func hinted(hint, format string, args ...any) error {
	return &mistake{text: fmt.Sprintf(format, args...), hint: hint}
}

// quoted returns text for an error message: in quotes, with visible control
// sequences, and cut after 80 bytes.
func quoted(text string) string {
	const most = 80
	if len(text) > most {
		return fmt.Sprintf("%q...", text[:most])
	}
	return fmt.Sprintf("%q", text)
}

// at puts file and line before err.
func at(pos Position, err error) error { return fmt.Errorf("%s: %w", pos, err) }
