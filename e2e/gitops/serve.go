package main

import (
	"fmt"
	"net/http"
	"net/http/cgi"
	"os/exec"

	"github.com/alicebob/miniredis/v2"
)

// serveGit serves the bare repositories of a folder over HTTP, to read and to push, until the program is killed.
func serveGit(address, folder string) error {
	git, err := exec.LookPath("git")
	if err != nil {
		return err
	}
	backend := &cgi.Handler{
		Path: git,
		Args: []string{"http-backend"},
		// Without REMOTE_USER, git takes no push from a stranger.
		Env: []string{"GIT_PROJECT_ROOT=" + folder, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=test"},
	}
	return http.ListenAndServe(address, backend)
}

// serveRedis stands in for the cache that the parts of Argo CD share, until the program is killed.
func serveRedis(address string) error {
	redis := miniredis.NewMiniRedis()
	if err := redis.StartAddr(address); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	select {}
}
