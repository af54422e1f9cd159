package activities_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"belay.run/activities"
	"belay.run/internal/proc"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// notifying returns what tells somebody of a leaked lock, and what it logs.
func notifying(t *testing.T) (tell func(*spec.Notify) error, log *observer.ObservedLogs, dir string) {
	t.Helper()
	dir = t.TempDir()
	p, err := proc.New(proc.Options{StateDir: filepath.Join(dir, "proc")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	core, log := observer.New(zapcore.InfoLevel)
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.SetTestTimeout(time.Minute)
	n := activities.NewNotifier(activities.NotifierConfig{
		Proc: p, Dir: filepath.Join(dir, "notices"), Secrets: secrets{"TOKEN": "s3cr3t-value"},
		Environment: []string{"PATH=" + os.Getenv("PATH")}, Logger: zap.New(core),
	})
	env.RegisterActivity(n)
	return func(who *spec.Notify) error {
		_, err := env.ExecuteActivity(n.Notify, activities.NotifyInput{Notify: who, Notice: activities.Notice{
			Event: activities.EventLeaked, Tenant: "acme", Project: "web", Pipeline: "demo", Run: "r", RunID: "id", RunKey: "k",
			At: time.Unix(9, 0).UTC(),
			Resources: []activities.NoticeResource{{
				Node: "s/a", Scope: "step", Kind: "lock", Name: "deploy", State: run.ResourceLeaked, Attempts: 6, Error: "Redis is away",
			}},
		}})
		return err
	}, log, dir
}

func TestNotifyLogsEachLeakAlsoWhereNobodyIsToBeTold(t *testing.T) {
	t.Parallel()
	tell, log, _ := notifying(t)
	require.NoError(t, tell(nil))
	lines := log.FilterLevelExact(zap.ErrorLevel).All()
	require.Len(t, lines, 1)
	require.Equal(t, "deploy", lines[0].ContextMap()["name"])
	require.Equal(t, "Redis is away", lines[0].ContextMap()["why"])
}

func TestNotifyByWebhook(t *testing.T) {
	t.Parallel()

	t.Run("SendsTheNoticeWithItsToken", func(t *testing.T) {
		t.Parallel()
		tell, _, _ := notifying(t)
		got := make(chan *http.Request, 1)
		bodies := make(chan []byte, 1)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			got <- r
			bodies <- body
		}))
		defer s.Close()
		require.NoError(t, tell(&spec.Notify{Webhook: s.URL + "/hook", Secret: "TOKEN"}))
		r := <-got
		require.Equal(t, "Bearer s3cr3t-value", r.Header.Get("Authorization"))
		require.Equal(t, "k/leaked/9000000000", r.Header.Get("Idempotency-Key"))
		var doc activities.Notice
		require.NoError(t, json.Unmarshal(<-bodies, &doc))
		require.Equal(t, "leaked", doc.Event)
		require.Equal(t, "deploy", doc.Resources[0].Name)
	})

	t.Run("FollowsNoRedirectAndTakesNoOtherAnswerForAYes", func(t *testing.T) {
		t.Parallel()
		tell, _, _ := notifying(t)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/moved" {
				http.Redirect(w, r, "/ok", http.StatusTemporaryRedirect)
				return
			}
			w.WriteHeader(http.StatusInternalServerError)
		}))
		defer s.Close()
		require.ErrorContains(t, tell(&spec.Notify{Webhook: s.URL + "/moved", Secret: "TOKEN"}), "307")
		require.ErrorContains(t, tell(&spec.Notify{Webhook: s.URL + "/broken"}), "500")
	})

	t.Run("LogsAnOutageOnceAndItsEndOnce", func(t *testing.T) {
		t.Parallel()
		tell, log, _ := notifying(t)
		var down atomic.Bool
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if down.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		defer s.Close()
		hook := &spec.Notify{Webhook: s.URL + "/t0ken"}
		require.NoError(t, tell(hook))
		for range 2 { // outages
			down.Store(true)
			for range 3 {
				require.ErrorContains(t, tell(hook), "503")
			}
			down.Store(false)
			for range 2 {
				require.NoError(t, tell(hook))
			}
		}
		warnings, back := log.FilterLevelExact(zap.WarnLevel).All(), log.FilterMessage("could notify again").All()
		require.Len(t, warnings, 2)
		require.Len(t, back, 2)
		require.EqualValues(t, 3, back[0].ContextMap()["failed_tries"])
		require.NotContains(t, fmt.Sprint(warnings[0].ContextMap()), "t0ken")
	})

	t.Run("ShowsNoAddress", func(t *testing.T) {
		t.Parallel()
		tell, _, _ := notifying(t)
		s := httptest.NewServer(http.NotFoundHandler())
		s.Close()
		err := tell(&spec.Notify{Webhook: s.URL + "/t0ken"})
		require.ErrorContains(t, err, "notifying 127.0.0.1")
		require.NotContains(t, err.Error(), "t0ken")
		var app *temporal.ApplicationError
		require.ErrorAs(t, err, &app)
		require.Equal(t, temporal.ApplicationErrorCategoryBenign, app.Category(), "or the SDK writes a line for each try")
		require.False(t, app.NonRetryable())
	})

	t.Run("SaysWhichSecretIsMissing", func(t *testing.T) {
		t.Parallel()
		tell, _, _ := notifying(t)
		require.ErrorContains(t, tell(&spec.Notify{Webhook: "http://127.0.0.1:9/", Secret: "OTHER"}), "notify: ")
	})
}

func TestNotifyByCommand(t *testing.T) {
	t.Parallel()

	t.Run("HandsOverTheNoticeAndLeavesNothing", func(t *testing.T) {
		t.Parallel()
		tell, _, dir := notifying(t)
		out := filepath.Join(dir, "out")
		require.NoError(t, tell(&spec.Notify{
			Command: `cat "$BELAY_NOTICE" > ` + out + `; echo "$BELAY_EVENT $BELAY_RUN_KEY $TOKEN" > ` + out + `.env`,
			Secrets: []string{"TOKEN"},
		}))
		text, err := os.ReadFile(out)
		require.NoError(t, err)
		var doc activities.Notice
		require.NoError(t, json.Unmarshal(text, &doc))
		require.Equal(t, "lock", doc.Resources[0].Kind)
		env, err := os.ReadFile(out + ".env")
		require.NoError(t, err)
		require.Equal(t, "leaked k s3cr3t-value\n", string(env))
		left, err := os.ReadDir(filepath.Join(dir, "notices"))
		require.NoError(t, err)
		require.Empty(t, left)
	})

	t.Run("FailsWithWhatItSaidButNoSecret", func(t *testing.T) {
		t.Parallel()
		tell, _, _ := notifying(t)
		err := tell(&spec.Notify{Command: `echo "cannot reach $TOKEN"; exit 3`, Secrets: []string{"TOKEN"}})
		require.ErrorContains(t, err, "exit code 3")
		require.ErrorContains(t, err, "cannot reach")
		require.NotContains(t, err.Error(), "s3cr3t-value")
	})
}
