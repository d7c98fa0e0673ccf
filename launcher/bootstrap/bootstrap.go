// Package bootstrap starts plx on a host through one remote shell session. It
// first sends the plx binary if the host does not have it.
//
//	s := bootstrap.New(bootstrap.Config{Host: "gpu01", Args: "agent start", Expected: own, Agent: agents.Of})
//	stream := host.Stream(ctx, s.Script())
//	if err := s.Run(ctx, stream); err != nil {
//		return err
//	}
//	// From here on plx reads and writes the stream.
//
// The remote shell runs bootstrap.sh. If the host already has the right plx
// binary, the script executes it. If not, the script reports the host's
// platform and tools, and reads orders, one per line. The orders say from
// where to get the binary and what to do with it. The script checks the
// SHA-256 of a new binary before the binary runs for the first time.
//
// The binary is compressed with gzip. It is sent as a file over a second
// session (sftp), or after an order on the same session. If there are many
// hosts, most of them download it from another host; see [Seeds].
//
// Every line that the script prints begins with a random word, the marker.
// Output before a marker, for example from shell start-up files, is ignored.
// Text that a host sends is never used as part of a path or command.
package bootstrap

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/envsync"
)

//go:embed bootstrap.sh
var script string

// Config says which plx binary to run on a host, and how the host gets it.
type Config struct {
	Host string // host name, for progress and error messages
	// Args is the command line of plx on the host without the program name,
	// such as "agent start". A shell splits it into words.
	Args string
	// Expected is the plx binary that the host probably needs, or the zero
	// value if no guess is possible.
	Expected envsync.Blob
	// Strict makes the host verify the SHA-256 of an existing binary before it
	// runs.
	Strict bool
	// Agent returns the plx binary for a platform. If it is nil, nothing is
	// sent: the host runs the binary that it has, or Run fails.
	Agent func(context.Context, envsync.Platform) (envsync.Blob, error)
	// Copy creates a file on the host over a second session, such as sftp. The
	// binary is sent over the session of the script in three cases: Copy is
	// nil, Copy fails, or the host lacks disk space to unpack the file.
	Copy func(ctx context.Context, r io.Reader, path string) error
	// Seeds are the hosts from which other hosts can download plx. If it is
	// nil, every host gets plx from this machine.
	Seeds *Seeds
	// Begin is the timeout for the script's first line. 0 means [StartLimit].
	Begin time.Duration
	// Begun is called after the script has printed its first line. It may be
	// nil.
	Begun    func()
	Progress envsync.Progress // receives the progress of sending plx; may be nil
	// BytesSent is called whenever this machine has sent a part of plx, with
	// the number of bytes of that part. It may be nil.
	BytesSent func(bytes int64)
}

// Stream is the stdin and stdout of the remote shell that runs the script.
type Stream interface {
	io.ReadWriter
	// Cancel makes the current and all later calls of Read and Write fail.
	Cancel(why error)
}

const (
	// StartLimit is the timeout for a host to start a command. Most hosts need
	// less than a second; slow start-up files of the login shell can take much
	// longer.
	StartLimit = 60 * time.Second
	// answerLimit is the timeout for a reply that needs little work on the
	// host. If the home directory is on a file server that hangs, the reply
	// never comes.
	answerLimit = 60 * time.Second
	// stallLimit is the time without progress after which a transfer to a host
	// is given up.
	stallLimit = 60 * time.Second
	// slowest is the minimum speed, in bytes per second, that is assumed for
	// receiving and hashing a file on a host.
	slowest = 1 << 20
	// maxNoise is the maximum number of bytes that a host may print before a
	// line of the script. A shell start-up file can print such bytes.
	maxNoise = 1 << 20
	// maxQuote is the maximum number of bytes of a host's output that an error
	// message quotes.
	maxQuote = 300
	// looks is how many times a host checks whether another host has written
	// the plx binary into their shared home directory. It checks once per
	// second.
	looks = 5
)

var (
	// ErrStart means that the script did not print its first line in time.
	ErrStart = errors.New("no command has started in time")
	// ErrMissing means that the host does not have the plx binary that it
	// should run, and plx must not send it.
	ErrMissing = errors.New("the plx binary is no longer on the host")
	// ErrEcho means that the host runs a terminal, which echoes the script
	// back, and no shell.
	ErrEcho = errors.New("the host echoes its input: it runs a terminal instead of a shell")
	// ErrNoise means that the host has printed more than maxNoise bytes, but
	// no line of the script.
	ErrNoise = errors.New("the host printed more than 1 MiB before a reply")
)

// NoReplyError is the error if the script did not print an expected line.
type NoReplyError struct {
	Last string // last line that the host printed; "" if it printed none
	Err  error
}

func (e *NoReplyError) Error() string {
	text := e.Err.Error()
	if e.Err == io.EOF {
		text = "the shell has ended, and has not answered"
	}
	if e.Last != "" {
		text += fmt.Sprintf("; it printed %q", e.Last)
	}
	return text
}

func (e *NoReplyError) Unwrap() error { return e.Err }

// RefusedError is the error if the host cannot store or run plx. Text gives the
// reason.
type RefusedError struct {
	Text     string
	Homeless bool // HOME is not set to an absolute path in the remote shell
	NoHome   bool // the home directory does not exist
	Limited  bool // a resource limit of the remote shell is too low for plx
	noExec   bool // the host has the plx binary, but forbids executing it
}

func (e *RefusedError) Error() string { return e.Text }

// Session is one run of the script on a host.
type Session struct {
	Config
	// Marker is the random word that begins every line of the script.
	Marker string
	// Plx is the binary that the host runs. It is set after Run has returned
	// nil.
	Plx envsync.Blob

	stream       Stream
	tools        []string // those of the programs gzip, bash and timeout that are installed on the host
	disk         string   // output of df for the disk of the home directory; "" if the host has not reported it
	processLimit string   // output of ulimit -u in the remote shell, which a failed script reports; "" if the script has not failed
	limits       []string // limits of the shell that runs plx: address space and data in KiB, processes, open files
	home         string   // home directory, as an absolute path on the host
	turn         *turn    // place of this host among the hosts of Seeds that get plx now; nil before that, and if the host already had plx
	done         bool     // true once the method Done was called
}

// New returns a Session for the configuration c. It does not connect to the
// host.
func New(c Config) *Session { return &Session{Config: c, Marker: "plx-" + rand.Text()} }

// Script returns the script for a POSIX shell on the host. Its first line is a
// comment, which a shell never prints. If the line comes back, a terminal has
// echoed the script, and Run returns ErrEcho.
func (s *Session) Script() string {
	id := make([]byte, 16)
	rand.Read(id) // crypto/rand.Read never returns an error
	strict, place := "", ""
	if s.Strict {
		strict = "yes"
	}
	if s.Agent == nil {
		place = "no"
	}
	return fmt.Sprintf("# %[1]s echo \nsay=%[1]s fsid=%s sum=%s strict=%s place=%s act='%s'\n%s", s.Marker, hex.EncodeToString(id), s.Expected.Sum, strict, place, s.Args, stripComments(script))
}

// stripComments returns the script without its comments.
func stripComments(script string) string {
	var out strings.Builder
	for line := range strings.Lines(script) {
		if text := strings.TrimLeft(line, "\t"); !strings.HasPrefix(text, "#") {
			out.WriteString(text)
		}
	}
	return out.String()
}

// Run communicates with the script until the script has executed plx. From
// then on, all bytes of the stream belong to plx. If Run returns nil, the
// caller must call [Session.Done].
func (s *Session) Run(ctx context.Context, stream Stream) error {
	s.stream = stream
	err := s.run(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		s.Plx = envsync.Blob{}
		s.Done(nil)
	}
	return err
}

// Done tells Seeds, the hosts that pass plx on to others, that the transfer of
// plx to this host has ended. The function seed makes this host serve its plx
// binary too; if seed is nil, it does not. Only the first call of Done has an
// effect.
func (s *Session) Done(seed func(context.Context) (Seed, error)) {
	if s.Seeds != nil && !s.done {
		s.Seeds.leave(s.turn, s.Plx.Sum, seed)
	}
	s.done = true
}

func (s *Session) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { s.stream.Cancel(context.Cause(ctx)) })()
	said, err := s.within(ctx, cmp.Or(s.Begin, StartLimit), ErrStart)
	if err != nil {
		return err
	}
	if s.Begun != nil {
		s.Begun()
	}
	if said.runs() {
		s.Plx = s.Expected
		return nil
	}
	facts := strings.SplitN(said.text, " ", 4)
	if s.Agent == nil || said.verb != "lacks" || len(facts) != 4 || !path.IsAbs(facts[3]) {
		return said.unexpected()
	}
	if !fileSystemName().MatchString(facts[2]) {
		return &RefusedError{Text: fmt.Sprintf("~/.plx/fsid on the host is damaged (%q): remove it", quote(facts[2]))}
	}
	s.home = facts[3]
	if said, err = s.answer(ctx, answerLimit); err != nil || said.verb != "tools" {
		return cmp.Or(err, said.unexpected())
	}
	s.tools = strings.Fields(said.text)
	agent, err := s.Agent(ctx, envsync.PlatformOf(facts[0], facts[1]))
	if err != nil {
		return err
	}
	s.Plx = agent
	s.order("is %s", agent.Sum)
	if agent.Sum != s.Expected.Sum { // if this binary was expected, the script has already reported that the host does not have it
		if here, err := s.look(ctx, agent, 0); here || err != nil {
			return err
		}
	}
	return s.obtain(ctx, agent, facts[2])
}

var fileSystemName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[[:xdigit:]]{32}$`) })

// look makes the host check whether it has the binary agent, and run it if so.
// here is true if plx now runs. If the binary is missing, the host checks
// again up to tries times, once per second.
func (s *Session) look(ctx context.Context, agent envsync.Blob, tries int) (here bool, err error) {
	s.order("look %d", tries)
	said, err := s.answer(ctx, s.limit(agent))
	if err == nil && !said.runs() && said.verb != "absent" {
		err = said.unexpected()
	}
	return said.runs(), err
}

// obtain sends plx to the host, from another host or from this machine.
func (s *Session) obtain(ctx context.Context, agent envsync.Blob, fileSystem string) error {
	if s.Seeds == nil {
		return s.send(ctx, agent)
	}
	var shared bool
	var err error
	if s.turn, shared, err = s.Seeds.enter(ctx, fileSystem+agent.Sum); err != nil {
		return err
	}
	if shared { // another host has written plx to a file system of this name: check that this host sees it, because copied disk images can give two separate file systems the same name
		if here, err := s.look(ctx, agent, looks); here || err != nil {
			return err
		}
	}
	able := slices.Contains(s.tools, "bash") && slices.Contains(s.tools, "timeout")
	if from := s.Seeds.choose(ctx, s.turn, agent.Sum, able); from != nil {
		s.showProgress(agent, 0, agent.Size)
		missed, err := s.fetch(ctx, agent, from)
		if err != nil {
			return err
		}
		if missed == nil {
			s.showProgress(agent, agent.Size, agent.Size)
			return nil
		}
		s.Seeds.miss(s.turn, missed)
	}
	return s.send(ctx, agent)
}

var plainAddress = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9A-Za-z.:_-]+$`) })

// fetch makes the host download plx from another host. If only the download
// fails, missed is the reason, and plx can still be sent from this machine.
func (s *Session) fetch(ctx context.Context, agent envsync.Blob, from *source) (missed, err error) {
	o, err := from.open()
	if err != nil {
		return err, nil
	}
	if !plainAddress().MatchString(o.Host) || !plainAddress().MatchString(o.Port) || !plainAddress().MatchString(o.Token) {
		return fmt.Errorf("%q is no address for a script", o.Host), nil
	}
	limit := seedTime + time.Duration(agent.Size/slowest)*time.Second
	s.order("peer %s %s %d %s", o.Host, o.Port, int(limit.Seconds()), o.Token)
	said, err := s.answer(ctx, limit+s.limit(agent))
	if err == nil && said.verb == "unhashed" {
		said, err = s.readBack(ctx, agent, said)
	}
	switch {
	case err != nil || said.runs():
		return nil, err
	case said.verb == "missed" && troubleIn(said.text, fullOrReadOnly) != "": // the disk is full or read-only, so sending from this machine would fail too
		return nil, &RefusedError{Text: ExplainHomeError(quote(said.text))}
	case said.verb == "missed":
		return fmt.Errorf("host %s could not download it from %s: %s", s.Host, net.JoinHostPort(o.Host, o.Port), quote(said.text)), nil
	case said.verb == "wrong":
		return fmt.Errorf("host %s received wrong content from %s", s.Host, net.JoinHostPort(o.Host, o.Port)), nil
	}
	return nil, said.unexpected()
}

// send sends plx to the host from this machine.
func (s *Session) send(ctx context.Context, agent envsync.Blob) error {
	packed, err := agent.Packed()
	if err != nil {
		return err
	}
	if !slices.Contains(s.tools, "gzip") {
		packed = nil
	}
	said := answer{verb: "missed"}
	if s.Copy != nil && packed != nil && s.upload(ctx, agent, packed) == nil {
		said, err = s.answer(ctx, s.limit(agent))
	}
	if err == nil && said.verb == "missed" { // send the binary over the script's session: if the disk is full, the shell then reports that as text
		said, err = s.sendInline(ctx, agent, packed)
	}
	if err == nil && said.verb == "unhashed" {
		said, err = s.readBack(ctx, agent, said)
	}
	var refused *RefusedError
	switch {
	case errors.As(err, &refused) && (refused.noExec || refused.Limited):
		return refused
	case errors.As(err, &refused):
		return fmt.Errorf("send plx: %w", s.explain(refused, agent.Size))
	case err != nil:
		return fmt.Errorf("send plx: %w", err)
	case said.runs():
		return nil
	case said.verb == "wrong":
		return fmt.Errorf("send plx: its SHA-256 on the host is %s, not %s: it was damaged on the way, or changed here while it was sent", quote(said.text), agent.Sum)
	}
	return said.unexpected()
}

// upload sends plx as a file over an SSH session of its own, such as sftp. It
// gives up if there is no progress for stallLimit.
func (s *Session) upload(ctx context.Context, agent envsync.Blob, packed []byte) error {
	name := "." + s.Marker + ".gz"
	size := int64(len(packed))
	s.showProgress(agent, 0, size)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stuck := time.AfterFunc(stallLimit, cancel)
	defer stuck.Stop()
	from := &progressReader{r: bytes.NewReader(packed), tell: func(sent, more int64) {
		stuck.Reset(stallLimit)
		s.countSent(more)
		s.showProgress(agent, sent, size)
	}}
	err := s.Copy(ctx, from, path.Join(s.home, envsync.BlobPath(name)))
	if err == nil {
		s.order("unpack")
	}
	return err
}

// sendInline sends plx over the script's session, and returns the script's reply.
// If the host stops reading, sendInline still reads the reply, which contains the
// reason.
func (s *Session) sendInline(ctx context.Context, agent envsync.Blob, packed []byte) (answer, error) {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit, ended := s.limit(agent), make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.writeInline(waiting, agent, packed); err != nil {
			cancel(err)
			return
		}
		time.AfterFunc(limit, func() { cancel(fmt.Errorf("no answer within %v: is the file system of its home stuck?", limit)) })
	}()
	said, err := s.answer(waiting, 24*time.Hour)
	if err != nil {
		cancel(err) // makes a blocked Write of the goroutine return
	}
	<-ended
	return said, err
}

// writeInline sends the plx binary to the script that runs on the host. It
// uses the stdin of the script: first a command to receive the file, then the
// file.
func (s *Session) writeInline(ctx context.Context, agent envsync.Blob, packed []byte) error {
	from, size, program := io.Reader(bytes.NewReader(packed)), int64(len(packed)), "gzip"
	if packed == nil {
		content, err := agent.Open()
		if err != nil {
			return fmt.Errorf("read it here: %w", err)
		}
		defer content.Close() // the file was only read
		from, size, program = content, agent.Size, "cat"
	}
	s.showProgress(agent, 0, size)
	defer context.AfterFunc(ctx, func() { s.stream.Cancel(context.Cause(ctx)) })()
	stall := fmt.Errorf("it received nothing for %v", stallLimit)
	stuck := time.AfterFunc(stallLimit, func() { s.stream.Cancel(stall) })
	defer stuck.Stop()
	s.order("take %d %s", size, program)
	piece := make([]byte, 128<<10)
	for sent := int64(0); sent < size; {
		n, err := from.Read(piece[:min(int64(len(piece)), size-sent)])
		if _, failed := s.stream.Write(piece[:n]); failed != nil {
			if !stuck.Stop() {
				return stall
			}
			return nil // return no error, because the script's reply will say why the host stopped reading
		}
		sent += int64(n)
		s.countSent(int64(n))
		s.showProgress(agent, sent, size)
		stuck.Reset(stallLimit)
		if err != nil && sent < size {
			return fmt.Errorf("read it here: %w", err)
		}
	}
	return nil
}

// readBack verifies plx on a host that has no program to compute SHA-256: it
// reads the file back and computes the checksum on this machine.
func (s *Session) readBack(ctx context.Context, agent envsync.Blob, said answer) (answer, error) {
	if said.text != strconv.FormatInt(agent.Size, 10) {
		return answer{verb: "wrong", text: said.text + " bytes"}, nil
	}
	s.order("back %d", agent.Size)
	hash := sha256.New()
	limit := s.limit(agent)
	err := Within(ctx, s.stream, limit, fmt.Errorf("reading it back took longer than %v", limit), func() error {
		_, err := io.CopyN(hash, s.stream, agent.Size)
		return err
	})
	if err != nil {
		return answer{}, fmt.Errorf("read it back: %w", err)
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); sum != agent.Sum {
		return answer{verb: "wrong", text: sum}, nil
	}
	s.order("trust")
	return s.answer(ctx, answerLimit)
}

// limit returns how long a host may take to store and hash the binary.
func (s *Session) limit(agent envsync.Blob) time.Duration {
	return answerLimit + time.Duration(agent.Size/slowest)*time.Second
}

func (s *Session) showProgress(agent envsync.Blob, sent, total int64) {
	if s.Seeds != nil {
		s.Seeds.progress()
	}
	if s.Progress != nil {
		s.Progress(s.Host, agent.Name, sent, total)
	}
}

func (s *Session) countSent(bytes int64) {
	if s.BytesSent != nil {
		s.BytesSent(bytes)
	}
}

// order sends one line to the script. It ignores a write error, because
// reading the script's next line then fails too and returns the cause.
func (s *Session) order(format string, args ...any) {
	_, _ = fmt.Fprintf(s.stream, format+"\n", args...)
}

// answer is a line that the script has printed: a verb and the text after it.
type answer struct{ verb, text string }

// runs reports whether the script has printed that it executes plx.
func (a answer) runs() bool { return a.verb == "runs" }

func (a answer) unexpected() error {
	return fmt.Errorf("unexpected reply from the shell: %q", quote(a.verb+" "+a.text))
}

// answer reads the script's next line. If the script has ended because of a
// problem on the host, the error is a *RefusedError.
func (s *Session) answer(ctx context.Context, limit time.Duration) (answer, error) {
	return s.within(ctx, limit, fmt.Errorf("no answer within %v: is the file system of its home stuck?", limit))
}

// within reads the script's next line, as the method answer does. If no line
// arrives within limit, the returned error is the parameter late.
func (s *Session) within(ctx context.Context, limit time.Duration, late error) (answer, error) {
	line, err := s.lineWithin(ctx, limit, late)
	if err != nil {
		return answer{}, err
	}
	verb, text, _ := strings.Cut(line, " ")
	switch verb {
	case "runs":
		s.limits = strings.Fields(text)
	case "echo":
		return answer{}, ErrEcho
	case "missing":
		return answer{}, ErrMissing
	case "disk":
		if s.disk != "" {
			break
		}
		s.disk = cmp.Or(text, "?")
		return s.answer(ctx, limit)
	case "processes":
		if s.processLimit != "" {
			break
		}
		s.processLimit = cmp.Or(text, "?")
		return s.answer(ctx, limit)
	case "homeless":
		return answer{}, &RefusedError{Text: fmt.Sprintf("the shell there has no home: HOME=%q", quote(text)), Homeless: true}
	case "noexec":
		why := "is the home mounted noexec?"
		if mount := quote(text); mount != "" {
			why = mount + " is mounted noexec"
		}
		return answer{}, &RefusedError{Text: NotExecutable(why), noExec: true}
	case "nohome":
		return answer{}, &RefusedError{Text: fmt.Sprintf("the home folder %s is not there", quote(text)), NoHome: true}
	case "error":
		if n, err := strconv.Atoi(s.processLimit); err == nil && (noProcess(text) || text == "" && n < fewProcesses) {
			return answer{}, &RefusedError{Text: fmt.Sprintf("plx cannot start there: "+LimitPrefix+"the number of processes to %d (ulimit -u)", n), Limited: true}
		}
		return answer{}, &RefusedError{Text: cmp.Or(ExplainHomeError(quote(text)), "a program that plx needs was ended there, and nothing says why: does a limit of the shell (ulimit -a) end it?")}
	}
	return answer{verb: verb, text: text}, nil
}

// Line returns the text after the marker in the next line that begins with the
// marker. After Run, plx itself may print such a line too.
func (s *Session) Line(ctx context.Context, limit time.Duration) (string, error) {
	return s.lineWithin(ctx, limit, fmt.Errorf("no answer within %v", limit))
}

func (s *Session) lineWithin(ctx context.Context, limit time.Duration, late error) (line string, err error) {
	var last string
	err = Within(ctx, s.stream, limit, late, func() (err error) {
		line, last, err = s.line()
		return err
	})
	if err != nil {
		err = &NoReplyError{last, err}
	}
	return line, err
}

// Within calls talk, which reads or writes stream. If talk takes longer than
// limit, Within cancels the stream and returns the error late. If ctx is
// canceled, it cancels the stream too, and returns the cause. A canceled
// stream is unusable.
func Within(ctx context.Context, stream Stream, limit time.Duration, late error, talk func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { stream.Cancel(context.Cause(ctx)) })
	err := talk()
	if !stop() {
		err = context.Cause(ctx)
	}
	return err
}

// NotExecutable returns the message for a host that forbids executing plx; why
// is the reason. The message includes the remedy, because hints are not shown
// with a job's verdict.
func NotExecutable(why string) string {
	return "programs in ~/.plx cannot be executed: " + why + "; mount it without noexec, or make ~/.plx a link to a folder on another disk"
}

// line returns the text after the marker in the next line that contains the
// marker. It reads nothing after that line. last is the line before it, for
// error messages.
func (s *Session) line() (text, last string, err error) {
	mark := []byte(s.Marker + " ")
	var line []byte
	one := make([]byte, 1)
	for total := 0; ; total++ {
		if total > maxNoise {
			return "", last, ErrNoise
		}
		n, err := s.stream.Read(one)
		if n == 0 && err == nil {
			continue
		}
		if err != nil && n == 0 {
			return "", cmp.Or(quote(string(line)), last), err
		}
		if one[0] != '\n' {
			line = append(line, one[0])
			continue
		}
		if at := bytes.Index(line, mark); at >= 0 {
			return strings.TrimSpace(string(line[at+len(mark):])), last, nil
		}
		last = cmp.Or(quote(string(line)), last)
		line = line[:0]
	}
}

// fewProcesses is a limit on the number of processes that is certainly too low
// for plx.
const fewProcesses = 16

// LimitPrefix begins the message of an agent that ends because a resource limit
// of its shell is too low. Session.Limited searches for it.
const LimitPrefix = "the shell limits "

// Limited returns an error if plx ended at its start because of a resource
// limit of the shell, and nil in other cases. said is what plx printed: its
// own message, or a crash report of the Go runtime.
func (s *Session) Limited(said string) *RefusedError {
	if _, why, told := strings.Cut(said, "plx agent: "+LimitPrefix); told {
		why, _, _ = strings.Cut(why, "\n")
		return &RefusedError{Text: "plx cannot start there: " + LimitPrefix + quote(why), Limited: true}
	}
	crash := strings.Contains(said, "fatal error: ") || strings.Contains(said, "runtime: ") || strings.Contains(said, "runtime/") || strings.Contains(said, "Segmentation fault")
	threads := strings.Contains(said, "OS thread") || strings.Contains(said, "pthread_create")
	files := strings.Contains(said, "failed with 24") || strings.Contains(said, "too many open files") // error number 24 is EMFILE
	var found []string
	for i, limit := range s.limits {
		n, err := strconv.ParseInt(limit, 10, 64)
		switch {
		case err != nil: // ulimit printed "unlimited", or nothing
		case i == 2 && (threads || crash && n < fewProcesses):
			found = append(found, fmt.Sprintf("the number of processes to %d (ulimit -u)", n))
		case i == 3 && files:
			found = append(found, fmt.Sprintf("the number of open files to %d (ulimit -n)", n))
		case i < 2 && !threads && !files && (crash || strings.TrimSpace(said) == ""):
			found = append(found, fmt.Sprintf("%s to %d MiB (ulimit %s)", []string{"the address space", "the memory for data"}[i], n>>10, []string{"-v", "-d"}[i]))
		}
	}
	if len(found) == 0 {
		return nil
	}
	return &RefusedError{Text: "plx cannot start there: " + LimitPrefix + strings.Join(found, " and "), Limited: true}
}

// noProcess reports whether a shell's message means that it could not start a
// process.
func noProcess(said string) bool {
	said = strings.ToLower(said)
	return strings.Contains(said, "fork") && (strings.Contains(said, "cannot fork") || strings.Contains(said, "resource temporarily unavailable"))
}

// LimitHint is the hint for the user if a resource limit on a host is too low
// for plx.
const LimitHint = "raise the limit in the file that sets it: a start-up file of the login shell (such as .bashrc), or /etc/security/limits.conf"

// homeTroubles maps error messages of the C library to explanations of what is
// wrong with the home directory.
var homeTroubles = []struct{ words, plain string }{
	{"read-only file system", "the home folder is read-only"},
	{"no space left on device", "the home folder's file system is full"},
	{"disk quota exceeded", "the home folder's quota is used up"},
	{"stale file handle", "the home folder's file server has lost it"},
	{"stale nfs file handle", "the home folder's file server has lost it"},
	{"input/output error", "the home folder's disk or file server is failing"},
	{"file size limit exceeded", "the shell limits the size of files (ulimit -f)"},
	{"permission denied", "the home folder may not be written"},
	{"not a directory", "something that is no folder is in the way in ~/.plx"},
}

// ExplainHomeError explains an error message about writing to the home directory. A
// message that begins with "plx: " is already an explanation.
func ExplainHomeError(said string) string {
	if plain, told := strings.CutPrefix(said, "plx: "); told {
		return plain
	}
	if plain := troubleIn(said, len(homeTroubles)); plain != "" {
		return plain + ": " + said
	}
	return said
}

// troubleIn searches the given number of first entries of homeTroubles for an
// error message. It returns the explanation, or "".
func troubleIn(said string, first int) string {
	for _, t := range homeTroubles[:first] {
		if strings.Contains(strings.ToLower(said), t.words) {
			return t.plain
		}
	}
	return ""
}

// fullOrReadOnly is the number of entries at the start of homeTroubles that
// are about a full or read-only disk. On such a disk, a second transfer from
// another machine fails too.
const fullOrReadOnly = 3

// explain adds the free disk space to an error if the disk has less than size
// bytes left.
func (s *Session) explain(err error, size int64) error {
	f := strings.Fields(s.disk)
	if len(f) < 4 {
		return err
	}
	if free, unread := strconv.ParseInt(f[3], 10, 64); unread == nil && free >= 0 && free < size>>10 {
		return fmt.Errorf("the home folder's file system has %d MiB left and %d MiB are needed: %w", free>>10, size>>20+1, err)
	}
	return err
}

// quote shortens text from a host for an error message.
func quote(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > maxQuote {
		s = strings.ToValidUTF8(s[:maxQuote], "") + "..."
	}
	return s
}

// progressReader is a Reader that reports how many bytes were read.
type progressReader struct {
	r    io.Reader
	sent int64                  // number of bytes read
	tell func(sent, more int64) // called after each read with the total and the number of new bytes
}

func (t *progressReader) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if n > 0 {
		t.sent += int64(n)
		t.tell(t.sent, int64(n))
	}
	return n, err
}
