package ssh

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/skeema/knownhosts"
	gossh "golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"
	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/bounded"
	"github.com/plx-run/plx/launcher/scratch"
	"github.com/plx-run/plx/launcher/ssh/sshconfig"
)

// preferred are the algorithms to request after those of the keys on record. SHA-1 and
// DSA come last. Certificates are requested only if their authority is on record.
var preferred = []string{
	gossh.KeyAlgoED25519,
	gossh.KeyAlgoECDSA256, gossh.KeyAlgoECDSA384, gossh.KeyAlgoECDSA521,
	gossh.KeyAlgoRSASHA512, gossh.KeyAlgoRSASHA256,
}

// hostKeys decides on the key of one host.
type hostKeys struct {
	cfg        Config
	files      []string // known_hosts files; new keys are recorded in the first
	known      *knownDB // content of files before the handshake; nil if Config.HostKey is set
	address    string   // host:port of its entry in known_hosts
	algorithms []string // host key algorithms to request, in this order
	acceptNew  bool     // an unknown key is accepted and recorded
	unchecked  bool     // the configuration wants no check
}

func newHostKeys(cfg Config, t sshconfig.Target) (*hostKeys, error) {
	k := &hostKeys{cfg: cfg, files: t.KnownHosts, address: joinAddress(strings.ToLower(t.HostName), t.Port),
		acceptNew: cfg.AcceptNewHostKeys || t.StrictKeys == sshconfig.AcceptNew, unchecked: t.StrictKeys == sshconfig.Unchecked}
	if t.KeyAlias != "" {
		k.address = joinAddress(strings.ToLower(t.KeyAlias), 22)
	}
	if cfg.HostKey != nil {
		return k, nil
	}
	var err error
	if k.known, err = openKnown(k.files); err != nil {
		return nil, err
	}
	k.algorithms = algorithmsFor(k.known, k.address)
	return k, nil
}

// algorithmsFor puts the types on record first, so that the server shows the known key.
// The others follow, so that a key of another type is refused as changed, and not for
// lack of an algorithm. The insecure ones follow the secure ones.
func algorithmsFor(db *knownDB, address string) []string {
	weak := gossh.InsecureAlgorithms().HostKeys
	var algorithms, last []string
	for _, name := range slices.Concat(db.HostKeyAlgorithms(address), preferred, []string{gossh.KeyAlgoRSA, "ssh-dss"}) {
		switch {
		case name == "" || slices.Contains(algorithms, name) || slices.Contains(last, name):
		case slices.Contains(weak, name):
			last = append(last, name)
		default:
			algorithms = append(algorithms, name)
		}
	}
	return append(algorithms, last...)
}

// check accepts or refuses the key that the host shows.
func (k *hostKeys) check(_ string, remote net.Addr, key gossh.PublicKey) error {
	if k.cfg.HostKey != nil {
		if sameKey(k.cfg.HostKey, key) {
			return nil
		}
		return k.refuse(key, []string{"the given key"}, false)
	}
	err := k.judge(k.known, remote, key)
	if isUnknown(err) && k.acceptNew {
		return k.record(remote, key)
	}
	return err
}

// judge compares the key with the keys on record.
func (k *hostKeys) judge(db *knownDB, remote net.Addr, key gossh.PublicKey) error {
	err := db.HostKeyCallback()(k.address, remote, key)
	var revoked *xknownhosts.RevokedError
	var differs *xknownhosts.KeyError
	switch {
	case errors.As(err, &revoked):
		return k.refuse(key, []string{db.place(revoked.Revoked)}, true)
	case errors.As(err, &differs):
		return k.refuse(key, k.recorded(db, differs.Want), false)
	}
	return err
}

// recorded lists the keys on record, except those of certificate authorities: a plain key
// does not contradict them.
func (k *hostKeys) recorded(db *knownDB, want []xknownhosts.KnownKey) []string {
	var places []string
	known := db.HostKeys(k.address)
	for _, one := range want {
		authority := slices.ContainsFunc(known, func(key knownhosts.PublicKey) bool {
			return key.Cert && sameKey(key, one.Key)
		})
		if !authority {
			places = append(places, db.place(one))
		}
	}
	return places
}

func (k *hostKeys) refuse(key gossh.PublicKey, recorded []string, revoked bool) *HostKeyError {
	return &HostKeyError{
		Host: k.cfg.Host, Address: knownhosts.Normalize(k.address), unchecked: k.unchecked,
		KeyType: key.Type(), Fingerprint: gossh.FingerprintSHA256(key), Recorded: recorded, Revoked: revoked,
	}
}

// knownDB is the content of known_hosts files.
type knownDB struct {
	*knownhosts.HostKeyDB
	names map[string]string // file on record, by path of its copy without bad lines; nil: no copies were read
}

// openKnown reads the files that exist. Like ssh it skips lines that it does not
// understand: one old or foreign line must not lock out all hosts.
func openKnown(files []string) (*knownDB, error) {
	var exist []string
	for _, file := range files {
		if _, err := os.Stat(file); err == nil {
			exist = append(exist, file)
		} else if !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("read known hosts: %w", err)
		}
	}
	db, err := knownhosts.NewDB(exist...)
	if err == nil {
		return &knownDB{HostKeyDB: db}, nil
	}
	known, err := openCleaned(exist)
	if err != nil {
		return nil, fmt.Errorf("read known hosts: %w", err)
	}
	return known, nil
}

// openCleaned reads copies of the files in which all lines but keys are empty. So the line
// numbers stay the same.
func openCleaned(files []string) (*knownDB, error) {
	folder, err := scratch.New()
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Remove() }() // a copy of public keys does no harm
	known := &knownDB{names: map[string]string{}}
	var copies []string
	for i, file := range files {
		data, err := bounded.ReadFile(file, bounded.Record)
		if err != nil {
			return nil, err
		}
		copied := fmt.Sprintf("%s/%d", folder.Path, i)
		if err := os.WriteFile(copied, cleanKnown(data), 0o600); err != nil {
			return nil, err
		}
		known.names[copied] = file
		copies = append(copies, copied)
	}
	known.HostKeyDB, err = knownhosts.NewDB(copies...)
	return known, err
}

func cleanKnown(data []byte) []byte {
	lines := bytes.Split(data, []byte("\n"))
	for i, line := range lines {
		if _, _, _, _, _, err := gossh.ParseKnownHosts(line); err != nil {
			lines[i] = nil
		}
	}
	return bytes.Join(lines, []byte("\n"))
}

// place returns file, line and type of a key on record.
func (db *knownDB) place(key xknownhosts.KnownKey) string {
	file := key.Filename
	if original, is := db.names[file]; is {
		file = original
	}
	return fmt.Sprintf("%s:%d (%s)", file, key.Line, key.Key.Type())
}

// recording excludes the other goroutines of this process. The lock on the file excludes
// other processes, if the file system has locks.
var recording sync.Mutex

// lockTimeout bounds the wait for another process that records a key.
const lockTimeout = 10 * time.Second

// unrecorded are the keys, by address, that this process accepted and could not record.
// The mutex recording guards them.
var unrecorded = map[string]gossh.PublicKey{}

// record adds the key of a host to the user's known_hosts. If another process was first,
// the key that it recorded counts. If the file cannot be written the key counts for as long
// as this process lives.
func (k *hostKeys) record(remote net.Addr, key gossh.PublicKey) error {
	recording.Lock()
	defer recording.Unlock()
	if k.files[0] == os.DevNull {
		return k.remember(key, errors.New("UserKnownHostsFile keeps none"))
	}
	file, err := openLocked(k.files[0])
	if errors.Is(err, syscall.EROFS) || errors.Is(err, os.ErrPermission) {
		return k.remember(key, err)
	}
	if err != nil {
		return fmt.Errorf("record the host key: %w", err)
	}
	defer func() { _ = file.Close() }() // the write was checked; this releases the lock
	db, err := openKnown(k.files)
	if err != nil {
		return err
	}
	if err := k.judge(db, remote, key); !isUnknown(err) {
		return err
	}
	if err := appendLine(file, knownhosts.Line([]string{k.address}, key)); err != nil {
		return fmt.Errorf("record the host key in %s: %w", k.files[0], err)
	}
	k.cfg.Notice(fmt.Sprintf("host %s: new host key %s %s recorded in %s",
		k.cfg.Host, key.Type(), gossh.FingerprintSHA256(key), k.files[0]))
	return nil
}

// remember accepts a key that cannot be recorded, unless the host has shown another one to
// this process.
func (k *hostKeys) remember(key gossh.PublicKey, cause error) error {
	before, seen := unrecorded[k.address]
	if seen && !sameKey(before, key) {
		return k.refuse(key, []string{"an earlier connection of this command (" + before.Type() + ")"}, false)
	}
	unrecorded[k.address] = key
	if !seen {
		k.cfg.Notice(fmt.Sprintf("warning: host %s: new host key %s %s is accepted but not recorded, so that the next command must accept it again: %v",
			k.cfg.Host, key.Type(), gossh.FingerprintSHA256(key), cause))
	}
	return nil
}

func isUnknown(err error) bool {
	refusal, is := err.(*HostKeyError)
	return is && !refusal.Changed()
}

// openLocked opens the file for appending and locks it. It makes the file and its folder
// if they are missing.
func openLocked(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	giveUp := time.Now().Add(lockTimeout)
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			// Without a lock on this file system a line may be written twice,
			// which does no harm.
			return file, nil
		}
		if time.Now().After(giveUp) {
			_ = file.Close() // nothing was written
			return nil, fmt.Errorf("%s is locked by another process", path)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// appendLine writes one line. If the file does not end in a newline it adds one first.
func appendLine(file *os.File, line string) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	start := ""
	if size := info.Size(); size > 0 && info.Mode().IsRegular() {
		last := make([]byte, 1)
		if _, err := file.ReadAt(last, size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			start = "\n"
		}
	}
	_, err = file.WriteString(start + line + "\n")
	return err
}
