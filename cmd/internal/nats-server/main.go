//go:build unix

// Command nats-server is the NATS server of nats-io, with the same flags and files, and two things
// more: a volume has one process, and a part of it stays free.
//
// It is what the image nats-server runs. JetStream does not lock its directory. After kubectl
// delete pod --force, the new pod of a StatefulSet starts while the process of the old one still
// runs on the same node. Then both write to one volume, and events that publishers were told are
// accepted are lost: docs/decisions/1215-nats-servers-and-their-volumes.md.
//
// It is here, and not beside the other programs, because it has no flags, messages and documents of
// ours.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const name = "nats-server"

func main() {
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	flags.Usage = func() {
		fmt.Println("The NATS server. Its flags: https://docs.nats.io/running-a-nats-service/introduction/flags")
		os.Exit(0)
	}
	// A signal that is to be sent to another process (-sl) is sent here, before the lock: that
	// process has it.
	options, err := server.ConfigureOptions(flags, os.Args[1:], server.PrintServerAndExit, flags.Usage, server.PrintTLSHelpAndDie)
	if err != nil {
		server.PrintAndDie(fmt.Sprintf("%s: %s", name, err))
	}
	if options.CheckConfig {
		fmt.Fprintf(os.Stderr, "%s: the configuration file %s is valid (%s)\n", name, options.ConfigFile, options.ConfigDigest())
		return
	}
	server.RedactArgs(os.Args)
	if options.JetStream && options.StoreDir != "" {
		held, err := lock(options.StoreDir)
		if err != nil {
			server.PrintAndDie(fmt.Sprintf("%s: %s", name, err))
		}
		defer held.Close() // when the process ends, however it ends
	}
	s, err := server.NewServer(options)
	if err != nil {
		server.PrintAndDie(fmt.Sprintf("%s: %s", name, err))
	}
	s.ConfigureLogger()
	if err := server.Run(s); err != nil {
		server.PrintAndDie(err.Error())
	}
	// Events in memory are in no file: what the volume has says nothing of them, and a limit for
	// streams in memory would be one for them.
	if options.JetStream && options.StoreDir != "" && options.JetStreamMaxStore != 0 {
		size := uint64(max(0, options.JetStreamMaxStore)) / 9 * 10 // the chart allows nine tenths
		v := &volume{dir: options.StoreDir, size: size, stat: syscall.Statfs, write: create, limit: hangLimit}
		if options.SyncAlways {
			v.write = createSynced
		}
		go func() {
			fmt.Fprintln(os.Stderr, v.watch(s, options.Accounts, options.Cluster.Port != 0))
			if errors.Is(v.failed, errHangs) {
				os.Exit(1) // nothing is answered from here on; to shut down needs the volume
			}
			time.AfterFunc(endWithin, func() { os.Exit(1) })
			s.Shutdown()
		}()
	}
	s.WaitForShutdown()
}

// lock waits until no other process has the directory. The kernel releases the lock when the
// process ends, also by SIGKILL. A file system that knows no locks is used without one, after a
// warning: a server that does not start takes no events at all.
func lock(directory string) (*os.File, error) {
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(directory, name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the volume: %w", err)
	}
	err = flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		fmt.Fprintf(os.Stderr, "Another process of %s uses %s. This one waits until that process has ended. "+
			"If this takes longer than a minute, look for a second pod: kubectl get pods --all-namespaces -o wide -l app.kubernetes.io/name=nats\n", name, directory)
		err = flock(f, syscall.LOCK_EX)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "Warning: the volume at %s cannot be locked (%s). Do not delete a pod of NATS with --force: "+
			"two processes would write to the volume, and events would be lost.\n", directory, err)
	}
	return f, nil
}

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
