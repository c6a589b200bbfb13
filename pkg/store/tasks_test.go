package store

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func addTask(t *testing.T, s *Store, id string) Task {
	t.Helper()
	l, err := s.Lock(t.Context(), id, LockStart)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	task := newTask()
	if err := l.AddTask(&task); err != nil {
		t.Fatal(err)
	}
	return task
}

func TestTasks(t *testing.T) {
	s := testStore(t)
	id := mustClaim(t, s, newSession("")).ID
	task := addTask(t, s, id)
	if task.N != 1 || task.Schema != Schema {
		t.Errorf("first task: %+v", task)
	}
	got, err := s.Task(id, 1)
	if diff := cmp.Diff(task, got); err != nil || diff != "" {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	exit := 0
	got.State, got.Exit = TaskExited, &exit
	if err := s.PutTask(id, got); err != nil {
		t.Fatal(err)
	}
	late := errors.New("it has ended")
	_, err = s.UpdateTask(t.Context(), id, 1, func(t *Task) error {
		if t.State.Ended() {
			return late
		}
		t.State = TaskLost
		return nil
	})
	if !errors.Is(err, late) {
		t.Errorf("UpdateTask = %v", err)
	}
	if again, err := s.Task(id, 1); err != nil || again.State != TaskExited {
		t.Errorf("%+v, %v", again, err)
	}
	if err := s.PutTask(id, Task{State: TaskRunning}); err == nil {
		t.Error("a task without a number was put")
	}
	closing, err := s.Lock(t.Context(), id, LockClose)
	if err != nil {
		t.Fatal(err)
	}
	defer closing.Unlock()
	if err := closing.AddTask(&task); err == nil {
		t.Error("a task was added under the close lock")
	}
	released := tryLock(t, s, id, LockStart)
	released.Unlock()
	if err := released.AddTask(&task); err == nil {
		t.Error("a task was added under a released lock")
	}
}

func TestTaskNumberHints(t *testing.T) {
	s := testStore(t)
	id := mustClaim(t, s, newSession("")).ID
	for range 40 {
		addTask(t, s, id)
	}
	lock := filepath.Join(s.SessionDir(id), "lock")
	next := 41
	for _, hint := range []string{"", "\n", "garbage", "0\n", "-5\n", "1\n", "30\n", "99999999999999999999\n", "1073741825\n", "\x00\x00", "41 \n", strings.Repeat("7", 1000)} {
		writeFile(t, lock, hint)
		if task := addTask(t, s, id); task.N != next {
			t.Errorf("hint %q: number %d, want %d", hint, task.N, next)
		}
		next++
		if data, _ := os.ReadFile(lock); !strings.HasPrefix(string(data), strconv.Itoa(next)+"\n") {
			t.Errorf("hint %q became %.20q, want %d", hint, data, next)
		}
	}
	writeFile(t, lock, strconv.Itoa(maxTask)+"\n")
	if task := addTask(t, s, id); task.N != maxTask {
		t.Errorf("number %d", task.N)
	}
	l := tryLock(t, s, id, LockStart)
	defer l.Unlock()
	task := newTask()
	if err := l.AddTask(&task); !errors.Is(err, ErrTooLarge) {
		t.Errorf("after the last number: %v", err)
	}
}

func TestPruneNeverReusesNumbers(t *testing.T) {
	s, ctx := testStore(t), t.Context()
	id := mustClaim(t, s, newSession("")).ID
	for i := range 10 {
		task := addTask(t, s, id)
		if i != 4 { // number 5 is still running
			task.State = TaskExited
			if err := s.PutTask(id, task); err != nil {
				t.Fatal(err)
			}
		}
	}
	// As racing starters may leave it.
	lock := filepath.Join(s.SessionDir(id), "lock")
	writeFile(t, lock, "7\n")
	if n, err := s.PruneTasks(ctx, id, 2, nil); n != 6 || err != nil {
		t.Errorf("PruneTasks = %d, %v; want 6", n, err)
	}
	if numbers, _ := s.taskNumbers(id); !slices.Equal(numbers, []int{5, 8, 9, 10}) {
		t.Errorf("left: %v", numbers)
	}
	if task := addTask(t, s, id); task.N != 11 {
		t.Errorf("next number %d, want 11", task.N)
	}
	if n, err := s.PruneTasks(ctx, id, 0, nil); n != 3 || err != nil {
		t.Errorf("PruneTasks = %d, %v; want 3", n, err)
	}
	os.Remove(lock)
	if task := addTask(t, s, id); task.N != 12 {
		t.Errorf("next number without a hint %d, want 12", task.N)
	}
	if n, err := s.PruneTasks(ctx, id, 100, nil); n != 0 || err != nil {
		t.Errorf("PruneTasks = %d, %v; want 0", n, err)
	}
}

// 200 goroutines and 4 processes take numbers at once: no two alike, none left
// out.
func TestTaskNumberRace(t *testing.T) {
	s := testStore(t)
	id := mustClaim(t, s, newSession("")).ID
	var mu sync.Mutex
	var got []int
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			task := addTask(t, s, id)
			mu.Lock()
			defer mu.Unlock()
			got = append(got, task.N)
		})
	}
	const perProcess = 50
	for range 4 {
		wg.Go(func() {
			out, err := helperCommand(t, nil, "tasks", s.dirs.State, id, strconv.Itoa(perProcess)).Output()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			for word := range strings.FieldsSeq(string(out)) {
				n, err := strconv.Atoi(word)
				if err != nil {
					t.Error(err)
				}
				got = append(got, n)
			}
		})
	}
	wg.Wait()
	slices.Sort(got)
	for i, n := range got {
		if n != i+1 {
			t.Fatalf("number %d at place %d", n, i+1)
		}
	}
	if want := 200 + 4*perProcess; len(got) != want {
		t.Errorf("%d numbers, want %d", len(got), want)
	}
	tasks, bad, err := s.Tasks(id)
	if err != nil || len(bad) > 0 || len(tasks) != len(got) {
		t.Errorf("Tasks = %d, %v, %v", len(tasks), bad, err)
	}
}

func TestLinkNewWithoutLinks(t *testing.T) {
	// Linking a directory is what every system refuses with EPERM.
	dir := t.TempDir()
	path := filepath.Join(dir, "1.json")
	if err := linkNew(dir, path, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := linkNew(dir, path, []byte("y")); !errors.Is(err, os.ErrExist) {
		t.Errorf("a number taken: %v", err)
	}
	if data, _ := os.ReadFile(path); string(data) != "x" {
		t.Errorf("content %q", data)
	}
}
