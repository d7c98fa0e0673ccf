package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

const (
	maxConns         = 256              // connections of one server, those in handshake included
	maxSessions      = 10               // sessions of one connection, as sshd has it
	handshakeTimeout = 15 * time.Second // of one connection
	closeWait        = 2 * time.Second  // for the end of what close ended
)

// server is one listening address.
type server struct {
	listener net.Listener
	key      gossh.Signer
	config   *gossh.ServerConfig

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
	serves sync.WaitGroup // the accept loop and the connections
}

// startServer serves on a free port of ip. Only the key allowed can log in.
func startServer(ctx context.Context, ip string, allowed gossh.PublicKey) (*server, error) {
	key, err := newKey()
	if err != nil {
		return nil, fmt.Errorf("make a host key: %w", err)
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return nil, err
	}
	s := &server{listener: listener, key: key, conns: map[net.Conn]struct{}{}}
	s.config = &gossh.ServerConfig{
		PublicKeyCallback: func(_ gossh.ConnMetadata, offered gossh.PublicKey) (*gossh.Permissions, error) {
			if !bytes.Equal(offered.Marshal(), allowed.Marshal()) {
				return nil, errors.New("unknown key")
			}
			return nil, nil
		},
	}
	s.config.AddHostKey(key)
	s.serves.Go(s.accept)
	return s, nil
}

func (s *server) accept() {
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files: wait until some are closed
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if !s.admit(conn) {
			_ = conn.Close() // the error of a refused connection says nothing
			continue
		}
		s.serves.Go(func() {
			defer s.dismiss(conn)
			s.serve(conn)
		})
	}
}

// admit registers a connection, unless there are too many.
func (s *server) admit(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= maxConns {
		return false
	}
	s.conns[conn] = struct{}{}
	return true
}

func (s *server) dismiss(conn net.Conn) {
	_ = conn.Close() // it has ended, or must end
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// serve handles one connection to its end.
func (s *server) serve(conn net.Conn) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return // it is closed
	}
	inner, channels, requests, err := gossh.NewServerConn(conn, s.config)
	if err != nil {
		return // the protocol tells the client
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return
	}
	var sessions sync.WaitGroup
	defer sessions.Wait()
	defer func() { _ = inner.Close() }()
	go gossh.DiscardRequests(requests) // answers keepalives; ends with the connection
	open := make(chan struct{}, maxSessions)
	for channel := range channels {
		if channel.ChannelType() != "session" {
			_ = channel.Reject(gossh.UnknownChannelType, "only sessions")
			continue
		}
		select {
		case open <- struct{}{}:
			sessions.Go(func() {
				defer func() { <-open }()
				serveSession(conn, channel)
			})
		default:
			_ = channel.Reject(gossh.ResourceShortage, "open failed")
		}
	}
}

// close ends the listener and all connections.
func (s *server) close() {
	s.mu.Lock()
	s.closed = true
	_ = s.listener.Close() // fails only if it is closed
	for conn := range s.conns {
		_ = conn.Close() // fails only if it is closed
	}
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		s.serves.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeWait):
	}
}
